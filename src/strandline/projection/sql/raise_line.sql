-- The line only grows, in an epoch.
UPDATE {schema}.projection
SET line = $3::bigint
WHERE id = $1::text AND epoch = $2::bigint AND line < $3::bigint;
