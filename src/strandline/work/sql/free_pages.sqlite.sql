-- Pages of the file that nothing is in.
SELECT freelist_count FROM pragma_freelist_count;
