-- What a projection has done of each key.

-- name: copy_parked
-- Keys that waited at or below a time wait on in a new epoch.
INSERT INTO {schema}.projection_offset (projection, epoch, slice, key, life, seq_nr, timestamp, parked)
SELECT projection, $3::bigint, slice, key, life, seq_nr, timestamp, parked
FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND parked <= $4::bigint;

-- name: drop_offsets
-- Offsets of epochs up to one go.
DELETE FROM {schema}.projection_offset WHERE projection = $1::text AND epoch <= $2::bigint;

-- name: drop_slice_rows
-- All slice rows go.
DELETE FROM {schema}.projection_offset WHERE projection = $1::text AND epoch = $2::bigint AND key = '';

-- name: forget_keys
-- Key rows of a slice at or below the line; those that wait, and the slice's own, stay.
DELETE FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND slice = $3::bigint AND timestamp <= $4::bigint
    AND parked IS NULL AND key <> '';

-- name: forget_parked
-- A key that waited in a life that is over does not wait any more.
DELETE FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND slice = $3::bigint AND key = $4::text AND life = $5::bigint
    AND parked IS NOT NULL;

-- name: key_row
-- The row of a key.
SELECT slice, key, life, seq_nr, timestamp, parked
FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND slice = $3::bigint AND key = $4::text;

-- name: key_rows (postgres)
-- Epoch and line of a projection, and the rows of those of many keys that have one, of one moment. Each is looked up by
-- itself: in a table without statistics PostgreSQL takes all rows of a projection for few, and reads them for every page.
SELECT p.epoch, p.line, o.its_key, o.life, o.seq_nr, o.timestamp, o.parked
FROM {schema}.projection AS p
LEFT JOIN (
    unnest($3::bigint[], $4::text[]) AS wanted (slice, key)
    CROSS JOIN LATERAL (
        SELECT o.key AS its_key, o.life, o.seq_nr, o.timestamp, o.parked
        FROM {schema}.projection_offset AS o
        WHERE o.projection = $1::text AND o.epoch = $2::bigint AND o.slice = wanted.slice AND o.key = wanted.key
        LIMIT 1
    ) AS o
) ON true
WHERE p.id = $1::text;

-- name: key_rows (sqlite)
-- Epoch and line of a projection, and the row of a key if it has one; for each of many.
SELECT p.epoch, p.line, o.key, o.life, o.seq_nr, o.timestamp, o.parked
FROM projection AS p
LEFT JOIN projection_offset AS o ON o.projection = p.id AND o.epoch = ?2 AND o.slice = ?3 AND o.key = ?4
WHERE p.id = ?1;

-- name: keys_above
-- Key rows of some slices above a time.
SELECT slice, key, life, seq_nr, timestamp, parked
FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND slice BETWEEN $3::bigint AND $4::bigint
    AND timestamp > $5::bigint AND key <> '';

-- name: parked_count
-- How many keys wait.
SELECT count(*) FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND parked IS NOT NULL;

-- name: parked_keys
-- The keys that wait.
SELECT slice, key, life, seq_nr, timestamp, parked
FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND parked IS NOT NULL
ORDER BY key;

-- name: parks_by_slice
-- How many keys wait in each slice.
SELECT slice, count(*) FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND parked IS NOT NULL
GROUP BY slice;

-- name: save_keys (postgres)
-- The last rows of many keys.
INSERT INTO {schema}.projection_offset (projection, epoch, slice, key, life, seq_nr, timestamp, parked)
SELECT $1::text, $2::bigint, new.slice, new.key, new.life, new.seq_nr, new.timestamp, new.parked
FROM unnest($3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
    AS new (slice, key, life, seq_nr, timestamp, parked)
ON CONFLICT (projection, epoch, slice, key)
DO UPDATE SET life = excluded.life, seq_nr = excluded.seq_nr, timestamp = excluded.timestamp, parked = excluded.parked;

-- name: save_keys (sqlite)
-- The last row of a key, for each of many.
INSERT INTO projection_offset (projection, epoch, slice, key, life, seq_nr, timestamp, parked)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (projection, epoch, slice, key)
DO UPDATE SET life = excluded.life, seq_nr = excluded.seq_nr, timestamp = excluded.timestamp, parked = excluded.parked;

-- name: slice_rows
-- Slices of a range that are further than their range.
SELECT slice, timestamp
FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND slice BETWEEN $3::bigint AND $4::bigint AND key = '';
