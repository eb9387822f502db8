-- What is asked for, in order.
SELECT id, asked, verb, slice, key, life, seq_nr, refused
FROM {schema}.projection_request
WHERE projection = $1::text
ORDER BY asked, id;
