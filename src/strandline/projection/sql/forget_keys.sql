-- Key rows of a slice at or below the line; those that wait, and the slice's own, stay.
DELETE FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND slice = $3::bigint AND timestamp <= $4::bigint
    AND parked IS NULL AND key <> '';
