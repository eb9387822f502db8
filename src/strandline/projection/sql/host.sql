-- Hosts that run projections, and their beats.

-- name: beat
-- A host says that it lives.
INSERT INTO {schema}.projection_host (projection, host, beat)
VALUES ($1::text, $2::text, $3::bigint)
ON CONFLICT (projection, host) DO UPDATE SET beat = excluded.beat;

-- name: drop_hosts
-- Its hosts go.
DELETE FROM {schema}.projection_host WHERE projection = $1::text;

-- name: hosts
-- Who runs a projection.
SELECT host, beat FROM {schema}.projection_host WHERE projection = $1::text;

-- name: leave
-- A host goes, or is found dead.
DELETE FROM {schema}.projection_host WHERE projection = $1::text AND host = $2::text;
