-- All slice rows go.
DELETE FROM {schema}.projection_offset WHERE projection = $1::text AND epoch = $2::bigint AND key = '';
