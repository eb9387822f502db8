-- Requests of a kind are done.
DELETE FROM {schema}.projection_request WHERE projection = $1::text AND verb = $2::text;
