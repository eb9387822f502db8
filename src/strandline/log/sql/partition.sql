-- Partitions: where each begins and ends.

-- name: add_partitions (postgres)
-- A new log: nothing in any partition.
INSERT INTO {schema}.log_partition (partition, newest, timestamp, trimmed)
SELECT number, -1, 0, -1 FROM generate_series(0, $1::integer - 1) AS number
ON CONFLICT (partition) DO NOTHING;

-- name: bound (postgres)
-- The last offset that was trimmed and the newest, of one partition.
SELECT trimmed, newest FROM {schema}.log_partition WHERE partition = $1::integer;

-- name: bound (sqlite)
-- Of one partition: the last offset that was trimmed, and the newest one; -1 where there is none.
WITH gone (log_offset) AS (SELECT coalesce(max(log_offset), -1) FROM trimmed WHERE partition = :partition)
SELECT
    gone.log_offset,
    max(
        gone.log_offset,
        coalesce((SELECT max(log_offset) FROM place WHERE partition = :partition), -1),
        coalesce((
            SELECT max(log_offset) FROM action WHERE seq > (SELECT seq FROM placed) AND partition = :partition
        ), -1)
    )
FROM gone;

-- name: bounds (postgres)
-- The last offset that was trimmed, the newest, and its timestamp, of each partition.
SELECT trimmed, newest, timestamp FROM {schema}.log_partition ORDER BY partition;

-- name: bounds (sqlite)
-- For each partition: the last offset that was trimmed, the newest one, and its timestamp; -1 and 0 where there is none.
WITH RECURSIVE numbered (partition) AS (
    VALUES (0) UNION ALL SELECT partition + 1 FROM numbered WHERE partition + 1 < :partitions
), found (partition, log_offset, timestamp) AS (
    SELECT partition, log_offset, timestamp FROM action WHERE seq > (SELECT seq FROM placed)
    UNION ALL
    SELECT numbered.partition, place.log_offset, place.timestamp FROM numbered JOIN place
    ON place.partition = numbered.partition AND place.log_offset = (
        SELECT max(log_offset) FROM place AS other WHERE other.partition = numbered.partition
    )
    UNION ALL
    SELECT partition, log_offset, timestamp FROM trimmed
    UNION ALL
    SELECT partition, -1, 0 FROM numbered
)
SELECT
    coalesce((SELECT trimmed.log_offset FROM trimmed WHERE trimmed.partition = found.partition), -1),
    max(found.log_offset),
    found.timestamp
FROM found GROUP BY found.partition ORDER BY found.partition;

-- name: lock_partitions (postgres)
-- Hold partitions until the end of the transaction, in ascending order, so that no two wait for each other; and who stops
-- in the middle of it keeps them no longer than this (ms).
SELECT partition, newest, timestamp, set_config('idle_in_transaction_session_timeout', ($2::text[])[1], true)
FROM {schema}.log_partition
WHERE partition = ANY($1::integer[]) ORDER BY partition FOR UPDATE;

-- name: put_trimmed (postgres)
-- A partition was trimmed up to here.
UPDATE {schema}.log_partition SET trimmed = greatest(trimmed, $2::bigint) WHERE partition = $1;

-- name: put_trimmed (sqlite)
INSERT OR REPLACE INTO trimmed (partition, log_offset, timestamp) VALUES (?, ?, ?);
