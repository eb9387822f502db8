-- It is done.
DELETE FROM {schema}.projection_request WHERE id = $1::text;
