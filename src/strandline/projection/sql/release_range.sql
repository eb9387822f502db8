-- A range is given back by its owner.
UPDATE {schema}.projection_range
SET owner = NULL, claims = 0
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint;
