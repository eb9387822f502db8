-- It could not be done, and why.
UPDATE {schema}.projection_request SET refused = $2::text WHERE id = $1::text;
