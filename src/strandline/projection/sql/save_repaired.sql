-- Up to which numbers a range has judged rows that were put back.
UPDATE {schema}.projection_range
SET repaired = $5::text
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint AND fence = $4::bigint;
