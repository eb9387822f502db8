-- Ranges of slices: who has each, and how far it is.

-- name: add_range
-- A new range, without owner.
INSERT INTO {schema}.projection_range (projection, epoch, lo, hi, fence, owner, position, saves, unclean_claims, attempt, failed, retry_at, restarts, counts)
VALUES ($1::text, $2::bigint, $3::bigint, $4::bigint, $5::bigint, NULL, $6::bigint, 0, 0, NULL, NULL, 0, 0, '{}');

-- name: claim_range
-- A range gets an owner and a new fence, unless somebody else was quicker, or its owner is in a transaction.
UPDATE {schema}.projection_range
SET owner = $6::text, fence = $5::bigint, unclean_claims = unclean_claims + 1, counts = '{}'
WHERE projection = $1::text AND epoch = $2::bigint AND lo = (
    SELECT lo FROM {schema}.projection_range
    WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint
    FOR UPDATE SKIP LOCKED
);

-- name: drop_ranges
-- Ranges of epochs up to one go.
DELETE FROM {schema}.projection_range WHERE projection = $1::text AND epoch <= $2::bigint;

-- name: fail_range
-- A range failed: it is free, and starts again when its time has come.
UPDATE {schema}.projection_range
SET owner = NULL, unclean_claims = 0, failed = $5::text, retry_at = $6::bigint, restarts = restarts + 1
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint;

-- name: fence_all
-- All ranges go to nobody, with a fence that no save of now has.
UPDATE {schema}.projection_range
SET owner = NULL, fence = $3::bigint
WHERE projection = $1::text AND epoch = $2::bigint;

-- name: free_range
-- A range is taken from an owner that does not come back.
UPDATE {schema}.projection_range
SET owner = NULL, fence = $5::bigint, failed = $6::text, retry_at = $7::bigint, restarts = restarts + 1
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint;

-- name: hold_range
-- A range whose next save the transaction will be, unless somebody else has it: locked, so that nobody takes it meanwhile.
SELECT 1
FROM {schema}.projection_range
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint AND saves = $5::bigint
FOR UPDATE;

-- name: limit_handler (postgres)
-- Where the host is stopped too, its session ends after so many milliseconds of silence, a statement after so many.
SELECT set_config('idle_in_transaction_session_timeout', $1::text, true), set_config('statement_timeout', $2::text, true);

-- name: leap_ranges
-- All ranges go to nobody, with fences that are larger by so much.
UPDATE {schema}.projection_range SET owner = NULL, fence = fence + $1::bigint;

-- name: lock_range
-- A range, locked: a commit of it that is under way ends first.
SELECT lo, hi, fence, owner, position, saves, unclean_claims, attempt, failed, retry_at, restarts, counts
FROM {schema}.projection_range
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint FOR UPDATE;

-- name: ranges
-- The ranges of a projection.
SELECT lo, hi, fence, owner, position, saves, unclean_claims, attempt, failed, retry_at, restarts, counts
FROM {schema}.projection_range
WHERE projection = $1::text AND epoch = $2::bigint
ORDER BY lo;

-- name: release_range
-- A range is given back by its owner.
UPDATE {schema}.projection_range
SET owner = NULL, unclean_claims = 0
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint;

-- name: save_range
-- The last statement of a save: it counts only for the owner, and only as the next one.
UPDATE {schema}.projection_range
SET position = $6::bigint, saves = saves + 1, unclean_claims = 0, attempt = NULL, failed = NULL, retry_at = 0, restarts = 0,
    counts = $7::text
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint AND saves = $5::bigint;

-- name: try_event
-- An attempt, written down before the handler runs.
UPDATE {schema}.projection_range
SET attempt = $5::text
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint;

-- name: wake_range
-- A range that failed may start again at once.
UPDATE {schema}.projection_range
SET retry_at = 0
WHERE projection = $1::text AND epoch = $2::bigint AND owner IS NULL
    AND $3::bigint BETWEEN lo AND hi;
