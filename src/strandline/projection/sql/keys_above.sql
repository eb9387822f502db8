-- Key rows of some slices above a time.
SELECT slice, key, life, seq_nr, timestamp, parked
FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND slice BETWEEN $3::bigint AND $4::bigint
    AND timestamp > $5::bigint AND key <> '';
