-- A dead letter goes.
DELETE FROM {schema}.projection_dead_letter
WHERE projection = $1::text AND key = $2::text AND life = $3::bigint AND seq_nr = $4::bigint;
