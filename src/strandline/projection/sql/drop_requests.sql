-- Its requests go.
DELETE FROM {schema}.projection_request WHERE projection = $1::text;
