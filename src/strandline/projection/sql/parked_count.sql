-- How many keys wait.
SELECT count(*) FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND parked IS NOT NULL;
