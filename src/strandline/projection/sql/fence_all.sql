-- All ranges go to nobody, with a fence that no save of now has.
UPDATE {schema}.projection_range
SET owner = NULL, fence = $3::bigint
WHERE projection = $1::text AND epoch = $2::bigint;
