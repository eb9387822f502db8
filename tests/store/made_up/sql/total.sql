-- Totals of keys.

-- name: look_made_total (postgres)
-- What was counted of keys.
SELECT key, life, events, seq_nr, timestamp, digest FROM {schema}.made_total WHERE key = ANY ($1::text[]);

-- name: look_made_total (sqlite)
-- What was counted of a key.
SELECT key, life, events, seq_nr, timestamp, digest FROM made_total WHERE key = ?1;

-- name: made_total_of
-- What was counted of a life.
SELECT key, life, events, seq_nr, timestamp, digest FROM {schema}.made_total WHERE key = $1 AND life = $2 LIMIT $3;

-- name: purge_made_total
-- What was counted of a life.
DELETE FROM {schema}.made_total WHERE key = $1 AND life = $2;

-- name: put_made_total (postgres)
-- What was counted of lives.
INSERT INTO {schema}.made_total (key, life, events, seq_nr, timestamp, digest)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
ON CONFLICT (key, life) DO UPDATE
SET events = excluded.events, seq_nr = excluded.seq_nr, timestamp = excluded.timestamp, digest = excluded.digest;

-- name: put_made_total (sqlite)
-- What was counted of a life.
INSERT INTO made_total (key, life, events, seq_nr, timestamp, digest) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (key, life) DO UPDATE
SET events = excluded.events, seq_nr = excluded.seq_nr, timestamp = excluded.timestamp, digest = excluded.digest;
