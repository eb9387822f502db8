-- What autovacuum would do at a time of its own.
VACUUM (ANALYZE);
