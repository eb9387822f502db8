-- Its hosts go.
DELETE FROM {schema}.projection_host WHERE projection = $1::text;
