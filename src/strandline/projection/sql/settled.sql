-- Events that were put back behind a projection, and that an operator handed over or discarded.

-- name: drop_settled
-- They go with their projection, or its epoch.
DELETE FROM {schema}.projection_settled WHERE projection = $1::text;

-- name: settle
-- An event does not make its projection stale any more.
INSERT INTO {schema}.projection_settled (projection, key, life, seq_nr)
VALUES ($1::text, $2::text, $3::bigint, $4::bigint)
ON CONFLICT (projection, key, life, seq_nr) DO NOTHING;

-- name: settled
-- All of a projection.
SELECT key, life, seq_nr FROM {schema}.projection_settled WHERE projection = $1::text;
