-- The last statement of a save: it counts only for the owner, and only as the next one.
UPDATE {schema}.projection_range
SET position = $6::bigint, saves = saves + 1, claims = 0, trying = NULL, failed = NULL, retry_at = 0, restarts = 0,
    counts = $7::text
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint AND saves = $5::bigint;
