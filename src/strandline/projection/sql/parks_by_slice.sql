-- How many keys wait in each slice.
SELECT slice, count(*) FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND parked IS NOT NULL
GROUP BY slice;
