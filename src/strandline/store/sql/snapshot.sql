-- Snapshots of keys.

-- step: 009_snapshot
-- States that users saved.
CREATE TABLE IF NOT EXISTS {schema}.snapshot (
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    seq_nr bigint NOT NULL,
    timestamp bigint NOT NULL,
    form integer NOT NULL,
    state bytea NOT NULL,
    digest bigint NOT NULL,
    PRIMARY KEY (key, life, seq_nr)
);

-- name: last_snapshot
-- Snapshots of a life, the newest first: from a number down to another.
SELECT key, life, seq_nr, timestamp, form, state, digest FROM {schema}.snapshot
WHERE key = $1 AND life = $2 AND seq_nr <= $3 AND seq_nr >= $4
ORDER BY seq_nr DESC LIMIT $5;

-- name: put_snapshot
-- Save a snapshot, or replace the one at its seq_nr.
INSERT INTO {schema}.snapshot (key, life, seq_nr, timestamp, form, state, digest) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (key, life, seq_nr) DO UPDATE
SET timestamp = excluded.timestamp, form = excluded.form, state = excluded.state, digest = excluded.digest;

-- name: remove_snapshots
-- Remove the snapshots of a life up to a seq_nr.
DELETE FROM {schema}.snapshot WHERE key = $1 AND life = $2 AND seq_nr <= $3;

-- name: snapshots
-- Snapshots of a life after a number, up to another, without their states.
SELECT seq_nr, timestamp, form FROM {schema}.snapshot
WHERE key = $1 AND life = $2 AND seq_nr > $3 AND seq_nr <= $4 ORDER BY seq_nr LIMIT $5;

-- name: snapshot_lives
-- The lives that have snapshots, after one of them.
SELECT DISTINCT key, life FROM {schema}.snapshot WHERE (key, life) > ($1, $2) ORDER BY key, life LIMIT $3;
