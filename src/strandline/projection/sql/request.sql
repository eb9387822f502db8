-- What operators asked of a projection.

-- name: ask
-- Ask the owner of a slice for something.
INSERT INTO {schema}.projection_request (id, projection, asked, verb, slice, key, life, seq_nr, refused)
VALUES ($1::text, $2::text, $3::bigint, $4::text, $5::bigint, $6::text, $7::bigint, $8::bigint, NULL);

-- name: asked_done
-- It is done.
DELETE FROM {schema}.projection_request WHERE id = $1::text;

-- name: drop_requests
-- Its requests go.
DELETE FROM {schema}.projection_request WHERE projection = $1::text;

-- name: drop_requests_of
-- Requests of a kind are done.
DELETE FROM {schema}.projection_request WHERE projection = $1::text AND verb = $2::text;

-- name: forget_refused
-- What was refused is asked for again, or does not matter any more.
DELETE FROM {schema}.projection_request
WHERE projection = $1::text AND verb = $2::text AND key = $3::text AND life = $4::bigint AND seq_nr = $5::bigint
    AND refused IS NOT NULL;

-- name: refuse
-- It could not be done, and why.
UPDATE {schema}.projection_request SET refused = $2::text WHERE id = $1::text;

-- name: refuse_all
-- Requests of a kind could not be done, and why.
UPDATE {schema}.projection_request SET refused = $3::text WHERE projection = $1::text AND verb = $2::text;

-- name: requests
-- What is asked for, in order.
SELECT id, asked, verb, slice, key, life, seq_nr, refused
FROM {schema}.projection_request
WHERE projection = $1::text
ORDER BY asked, id;
