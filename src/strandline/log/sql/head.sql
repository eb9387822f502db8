-- Heads in the log: what its fold knows of each key.

-- name: add_latest (sqlite)
-- Where the heads of keys are that are new; fails if one is not.
INSERT OR FAIL INTO latest (key_hash, seq, digest) VALUES (?, ?, ?);

-- name: heads (postgres)
-- The server's clock (µs), in a row without a key, and the states of these keys with their digests. After the partitions
-- are held: a statement of its own sees what the last holder committed.
SELECT NULL::bytea, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text, NULL::bigint
UNION ALL
SELECT key_digest, state, digest FROM {schema}.log_head WHERE key_digest = ANY($1::bytea[]);

-- name: heads (sqlite)
-- The states of these keys (a JSON array of digests in hexadecimal) that are in the table of heads, with their digests.
SELECT key_digest, state, digest FROM head WHERE key_digest IN (SELECT unhex(value) FROM json_each(?1));

-- name: latest (sqlite)
-- The actions that have the heads of these hashes (a JSON array), with the digests of these heads; nothing but the hash
-- where the head is elsewhere.
SELECT
    latest.key_hash, latest.seq, latest.digest, action.key, action.state, action.partition, action.log_offset,
    action.timestamp, action.first, action.last, action.header
FROM latest LEFT JOIN action ON action.seq = latest.seq
WHERE latest.key_hash IN (SELECT value FROM json_each(?));

-- name: latest_up_to (sqlite)
-- The actions of a partition, up to an offset, that have heads.
SELECT
    latest.key_hash, latest.digest, action.key, action.state, action.partition, action.log_offset, action.timestamp,
    action.first, action.last, action.header
FROM place
CROSS JOIN latest ON latest.key_hash = place.key_hash AND latest.seq = place.seq
CROSS JOIN action ON action.seq = place.seq
WHERE place.partition = :partition AND place.log_offset <= :to;

-- name: leave_latest (sqlite)
-- The heads of these hashes (a JSON array) are not with their latest action any more.
UPDATE latest SET seq = NULL, digest = NULL WHERE key_hash IN (SELECT value FROM json_each(?));

-- name: put_head (sqlite)
-- The state of a key and its digest, in the table of heads.
INSERT OR REPLACE INTO head (key_digest, state, digest) VALUES (?1, ?2, ?3);

-- name: put_latest (sqlite)
-- Where the heads of keys are now that were with their latest action before.
INSERT OR REPLACE INTO latest (key_hash, seq, digest) VALUES (?, ?, ?);

-- name: remove_head (sqlite)
-- A key has its head elsewhere.
DELETE FROM head WHERE key_digest = ?1;

-- name: take_latest (sqlite)
-- A head goes back to its latest action, if no other key of this hash was quicker.
UPDATE latest SET seq = :seq, digest = :digest WHERE key_hash = :key_hash AND seq IS NULL;
