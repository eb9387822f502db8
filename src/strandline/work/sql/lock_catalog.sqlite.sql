-- The write lock of the file is held anyway.
SELECT $1;
