-- Ask the owner of a slice for something.
INSERT INTO {schema}.projection_request (id, projection, asked, verb, slice, key, life, seq_nr, refused)
VALUES ($1::text, $2::text, $3::bigint, $4::text, $5::bigint, $6::text, $7::bigint, $8::bigint, NULL);
