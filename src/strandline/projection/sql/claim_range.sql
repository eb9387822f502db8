-- A range gets an owner and a new fence, unless somebody else was quicker.
UPDATE {schema}.projection_range
SET owner = $6::text, fence = $5::bigint, claims = claims + 1, counts = '{}'
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint;
