-- A log that another one follows, and the one that follows it (`strandline.repartition`).

-- name: end_appends (postgres)
-- Refuse every record from now on, of every process: the constraint's name is what they are told. Who is in the middle of
-- a commit is waited for.
ALTER TABLE {schema}.log_action ADD CONSTRAINT log_replaced CHECK (false) NOT VALID;

-- name: end_appends (sqlite)
-- Refuse every record from now on, of every process.
CREATE TRIGGER IF NOT EXISTS log_replaced BEFORE INSERT ON action BEGIN SELECT RAISE(ABORT, 'log_replaced'); END;

-- name: forget_heads (postgres)
-- No head is known.
DELETE FROM {schema}.log_head;

-- name: forget_heads (sqlite)
DELETE FROM head;

-- name: resume_appends (postgres)
-- Take records again.
ALTER TABLE {schema}.log_action DROP CONSTRAINT IF EXISTS log_replaced;

-- name: resume_appends (sqlite)
DROP TRIGGER IF EXISTS log_replaced;

-- name: keep_follows
-- This log follows another one, of this id.
INSERT INTO {schema}.log_setting (name, value) VALUES ('follows', $1::text)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: seed_heads (postgres)
-- States of keys, given by columns, as the log before had them.
INSERT INTO {schema}.log_head (key_digest, state, digest)
SELECT * FROM unnest($1::bytea[], $2::text[], $3::bigint[])
ON CONFLICT (key_digest) DO UPDATE SET state = excluded.state, digest = excluded.digest;

-- name: seed_heads (sqlite)
INSERT OR REPLACE INTO head (key_digest, state, digest) VALUES (?1, ?2, ?3);

-- name: start_partition (postgres)
-- Offsets and timestamps of a partition go on above these.
UPDATE {schema}.log_partition SET newest = $2::bigint, timestamp = $3::bigint, trimmed = $2::bigint
WHERE partition = $1::integer;

-- name: start_partition (sqlite)
INSERT OR REPLACE INTO trimmed (partition, log_offset, timestamp) VALUES (?1, ?2, ?3);
