-- The row of a key.
SELECT slice, key, life, seq_nr, timestamp, parked
FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND slice = $3::bigint AND key = $4::text;
