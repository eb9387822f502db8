-- A range that failed may start again at once.
UPDATE {schema}.projection_range
SET retry_at = 0
WHERE projection = $1::text AND epoch = $2::bigint AND $3::bigint BETWEEN lo AND hi;
