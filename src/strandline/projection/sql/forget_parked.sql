-- A key that waited in a life that is over does not wait any more.
DELETE FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND slice = $3::bigint AND key = $4::text AND life = $5::bigint
    AND parked IS NOT NULL;
