-- What was refused is asked for again, or does not matter any more.
DELETE FROM {schema}.projection_request
WHERE projection = $1::text AND verb = $2::text AND key = $3::text AND life = $4::bigint AND seq_nr = $5::bigint
    AND refused IS NOT NULL;
