-- Requests of a kind could not be done, and why.
UPDATE {schema}.projection_request SET refused = $3::text WHERE projection = $1::text AND verb = $2::text;
