-- Pointers: how far each partition of the log is in the store.

-- step: 005_pointer
-- How far each partition is in the store. In PostgreSQL all rows are made with the store, because who writes a partition
-- holds its row; in a file a partition without a row has nothing in it yet.
CREATE TABLE IF NOT EXISTS {schema}.pointer (
    partition integer NOT NULL PRIMARY KEY,
    log_offset bigint NOT NULL,
    timestamp bigint NOT NULL,
    last_action_at bigint NOT NULL,
    fence bigint NOT NULL,
    revision bigint NOT NULL,
    digest bigint NOT NULL
) WITH (fillfactor = 10);

-- name: lock_pointer
-- How far a partition is; it stays so until the end of the transaction.
SELECT partition, log_offset, timestamp, last_action_at, fence, revision, digest FROM {schema}.pointer
WHERE partition = $1 FOR UPDATE;

-- name: lock_pointers
-- How far all partitions are; they stay so until the end of the transaction.
SELECT partition, log_offset, timestamp, last_action_at, fence, revision, digest FROM {schema}.pointer
ORDER BY partition FOR UPDATE;

-- name: pointers
-- How far all partitions are.
SELECT partition, log_offset, timestamp, last_action_at, fence, revision, digest FROM {schema}.pointer ORDER BY partition;

-- name: set_pointer
-- Move a pointer, or raise its fence or revision.
INSERT INTO {schema}.pointer (partition, log_offset, timestamp, last_action_at, fence, revision, digest)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (partition) DO UPDATE
SET log_offset = excluded.log_offset, timestamp = excluded.timestamp, last_action_at = excluded.last_action_at,
    fence = excluded.fence, revision = excluded.revision, digest = excluded.digest;
