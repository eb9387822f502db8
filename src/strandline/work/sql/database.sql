-- What work journals ask of the database itself.

-- name: free_pages (sqlite)
-- Pages of the file that nothing is in.
SELECT freelist_count FROM pragma_freelist_count;

-- name: queue_usage (postgres)
-- How full the server's queue of notifications is, 0 to 1.
SELECT pg_notification_queue_usage();

-- name: standbys (postgres)
-- Which synchronous standbys a commit waits for.
SELECT current_setting('synchronous_standby_names');

-- name: try_lock (postgres)
-- The same, or not at all.
SELECT pg_try_advisory_xact_lock($1::bigint);

-- name: vacuum (sqlite)
-- Give free pages back, so many.
PRAGMA incremental_vacuum({1});
