-- A projection goes.
DELETE FROM {schema}.projection WHERE id = $1::text;
