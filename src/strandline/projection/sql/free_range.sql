-- A range is taken from an owner that does not come back.
UPDATE {schema}.projection_range
SET owner = NULL, fence = $5::bigint, failed = $6::text, retry_at = $7::bigint, restarts = restarts + 1
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint;
