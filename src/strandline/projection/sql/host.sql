-- Hosts that run projections, and their beats.

-- name: beat
-- A host says that it lives, and for how long from now.
INSERT INTO {schema}.projection_host (projection, host, beat, lease_us, since)
VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $3::bigint)
ON CONFLICT (projection, host) DO UPDATE SET beat = excluded.beat, lease_us = excluded.lease_us;

-- name: bury
-- A host was found dead. One that has beaten since lives again.
DELETE FROM {schema}.projection_host WHERE projection = $1::text AND host = $2::text AND beat = $3::bigint;

-- name: drop_hosts
-- Its hosts go.
DELETE FROM {schema}.projection_host WHERE projection = $1::text;

-- name: hosts
-- Who runs a projection.
SELECT host, beat, lease_us, since FROM {schema}.projection_host WHERE projection = $1::text;

-- name: leave
-- A host goes.
DELETE FROM {schema}.projection_host WHERE projection = $1::text AND host = $2::text;

-- name: forget_hosts
-- Nobody runs a projection.
DELETE FROM {schema}.projection_host;
