-- An attempt, written down before the handler runs.
UPDATE {schema}.projection_range
SET trying = $5::text
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint;
