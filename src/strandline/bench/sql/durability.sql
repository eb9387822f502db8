-- What decides whether a commit is on disk when it is acknowledged.
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes');
