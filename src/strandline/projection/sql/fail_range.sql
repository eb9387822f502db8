-- A range failed: it is free, and starts again when its time has come.
UPDATE {schema}.projection_range
SET owner = NULL, claims = 0, failed = $5::text, retry_at = $6::bigint, restarts = restarts + 1
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint;
