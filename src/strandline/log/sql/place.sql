-- Places of a SQLite log: which action is at which offset of a partition.

-- name: place_actions (sqlite)
-- Note where the actions are that were recorded since the last time.
INSERT OR FAIL INTO place (partition, log_offset, timestamp, key_hash, seq)
SELECT partition, log_offset, timestamp, key_hash, seq FROM action WHERE seq > (SELECT seq FROM placed)
ORDER BY partition, log_offset;

-- name: place_at (postgres)
-- The action at a place: its timestamp.
SELECT timestamp FROM {schema}.log_action WHERE partition = $1 AND log_offset = $2;

-- name: place_at (sqlite)
SELECT timestamp FROM place WHERE partition = ? AND log_offset = ?;

-- name: put_placed (sqlite)
-- All actions up to this one can be found by their place.
UPDATE placed SET seq = ?;

-- name: read_placed (sqlite)
-- Records of a partition after an offset, as the fields of a Record, found by their places. Of one key where one is
-- given; without values where they are not wanted.
SELECT
    action.partition, action.log_offset, action.timestamp, action.key, action.header,
    iif(:values, action.value, NULL), action.life, action.first, action.last
FROM place CROSS JOIN action ON action.seq = place.seq
WHERE place.partition = :partition AND place.log_offset > :after AND place.log_offset <= :to
-- The hash first, and on its own: a record of another key is then not even looked at.
AND (:key_hash IS NULL OR place.key_hash = :key_hash) AND (:key IS NULL OR action.key = :key)
ORDER BY place.log_offset LIMIT :limit;

-- name: trim_places (sqlite)
-- Forget where they were.
DELETE FROM place WHERE partition = :partition AND log_offset <= :to;
