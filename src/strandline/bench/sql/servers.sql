-- What benchmarks do to a server.

-- name: checkpoint
-- What the checkpointer would do at a time of its own.
CHECKPOINT;

-- name: create_database
-- A database for one round.
CREATE DATABASE {database};

-- name: drop_database
-- The round is over, whoever is still connected.
DROP DATABASE IF EXISTS {database} WITH (FORCE);

-- name: durability
-- What decides whether a commit is on disk when it is acknowledged.
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes');

-- name: events_by_time
-- The rows of a partition by time, as they are. In binary, through a cursor of the server's.
SELECT key, life, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
FROM strandline.journal
WHERE entity_type = 'order' AND partition = %s
ORDER BY timestamp, seq_nr;

-- name: vacuum
-- What autovacuum would do at a time of its own.
VACUUM (ANALYZE);
