-- Events that a projection gave up.

-- name: add_letter
-- A dead letter; one of the same event that is there counts on.
INSERT INTO {schema}.projection_dead_letter (projection, key, life, seq_nr, slice, timestamp, attempts, first_at, last_at, error_type, message, reason)
VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::bigint, $9::bigint, $10::text, $11::text, $12::text)
ON CONFLICT (projection, key, life, seq_nr)
DO UPDATE SET attempts = projection_dead_letter.attempts + excluded.attempts, last_at = excluded.last_at,
    error_type = excluded.error_type, message = excluded.message, reason = excluded.reason;

-- name: drop_letters
-- Its dead letters above a time go.
DELETE FROM {schema}.projection_dead_letter WHERE projection = $1::text AND timestamp > $2::bigint;

-- name: end_letter
-- A dead letter goes.
DELETE FROM {schema}.projection_dead_letter
WHERE projection = $1::text AND key = $2::text AND life = $3::bigint AND seq_nr = $4::bigint;

-- name: letter
-- One dead letter.
SELECT key, life, seq_nr, slice, timestamp, attempts, first_at, last_at, error_type, message, reason
FROM {schema}.projection_dead_letter
WHERE projection = $1::text AND key = $2::text AND life = $3::bigint AND seq_nr = $4::bigint;

-- name: letters
-- The dead letters of a projection.
SELECT key, life, seq_nr, slice, timestamp, attempts, first_at, last_at, error_type, message, reason
FROM {schema}.projection_dead_letter
WHERE projection = $1::text AND (key, life, seq_nr) > ($2::text, $3::bigint, $4::bigint)
ORDER BY key, life, seq_nr LIMIT $5::bigint;

-- name: letters_by_slice
-- How many dead letters each slice has.
SELECT slice, count(*) FROM {schema}.projection_dead_letter WHERE projection = $1::text GROUP BY slice;
