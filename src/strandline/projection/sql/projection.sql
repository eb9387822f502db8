-- Projections by name.

-- name: add_projection
-- A new projection; one that is there stays as it is.
INSERT INTO {schema}.projection (id, name, generation, state, epoch, source, start, line, paused, target_ranges, fence, history_id, revisions)
VALUES ($1::text, $2::text, $3::bigint, $4::text, $5::bigint, $6::text, $7::bigint, $8::bigint, $9::bigint, $10::bigint, $11::bigint, $12::text, $13::text)
ON CONFLICT (name, generation) DO NOTHING;

-- name: drop_projection
-- A projection goes.
DELETE FROM {schema}.projection WHERE id = $1::text;

-- name: leap_projections
-- The largest fences are larger by so much.
UPDATE {schema}.projection SET fence = fence + $1::bigint;

-- name: lock_projection
-- One generation of a projection, locked: who changes its ranges does it alone.
SELECT id, name, generation, state, epoch, source, start, line, paused, target_ranges, fence, history_id, revisions
FROM {schema}.projection
WHERE id = $1::text FOR UPDATE;

-- name: named
-- The generations of a name.
SELECT id, name, generation, state, epoch, source, start, line, paused, target_ranges, fence, history_id, revisions
FROM {schema}.projection
WHERE name = $1::text
ORDER BY generation;

-- name: projection_by_id
-- One generation of a projection.
SELECT id, name, generation, state, epoch, source, start, line, paused, target_ranges, fence, history_id, revisions
FROM {schema}.projection
WHERE id = $1::text;

-- name: projections
-- All projections, generation by generation.
SELECT id, name, generation, state, epoch, source, start, line, paused, target_ranges, fence, history_id, revisions
FROM {schema}.projection
ORDER BY name, generation;

-- name: move_history
-- Projections of one history go on in another one.
UPDATE {schema}.projection SET history_id = $2::text WHERE history_id = $1::text;

-- name: raise_fence
-- The next fence of a projection.
UPDATE {schema}.projection
SET fence = fence + 1
WHERE id = $1::text
RETURNING fence;

-- name: raise_line
-- The line only grows, in an epoch.
UPDATE {schema}.projection
SET line = $3::bigint
WHERE id = $1::text AND epoch = $2::bigint AND line < $3::bigint;

-- name: set_projection
-- All of a projection that changes.
UPDATE {schema}.projection
SET name = $2::text, state = $3::text, epoch = $4::bigint, start = $5::bigint, line = $6::bigint, paused = $7::bigint,
    target_ranges = $8::bigint, fence = $9::bigint, history_id = $10::text, revisions = $11::text
WHERE id = $1::text;
