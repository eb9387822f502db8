-- A store that goes on from another log (`strandline.repartition`).

-- name: all_quarantined
-- All of the quarantine.
SELECT partition, log_offset, timestamp, key, reason, header, value, life, first, last, digest FROM {schema}.quarantine
ORDER BY partition, log_offset;

-- name: all_repaired
-- All rows that were put back.
SELECT partition, number, key, life, seq_nr, timestamp, tag, tag_seq_nr, digest FROM {schema}.repaired
ORDER BY number, partition;

-- name: change_setting
-- What creation fixed, and a change of logs changes.
INSERT INTO {schema}.setting (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: empty_quarantine
-- Take all rows out, to put them back elsewhere.
DELETE FROM {schema}.quarantine;

-- name: empty_repaired
-- Take all rows out, to put them back elsewhere.
DELETE FROM {schema}.repaired;

-- name: log_now
-- Which log the store is filled from now: another process may have changed it.
SELECT value FROM {schema}.setting WHERE name = 'log_id';

-- name: move_events
-- The partition of each event, by its slice, where there are so many partitions.
UPDATE {schema}.journal SET partition = slice * $1::integer / 1024 WHERE partition <> slice * $1::integer / 1024;
