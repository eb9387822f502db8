-- Slices of a range that are further than their range.
SELECT slice, timestamp
FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND slice BETWEEN $3::bigint AND $4::bigint AND key = '';
