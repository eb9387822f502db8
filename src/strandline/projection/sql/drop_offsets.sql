-- Offsets of epochs up to one go.
DELETE FROM {schema}.projection_offset WHERE projection = $1::text AND epoch <= $2::bigint;
