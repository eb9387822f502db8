-- Add notes; their names.
INSERT INTO {schema}.note_page (name, number, done, weight, body)
SELECT name, number, done, weight * $1::double precision, body
FROM unnest($2::text[], $3::bigint[], $4::boolean[], $5::double precision[], $6::bytea[])
    AS given (name, number, done, weight, body)
RETURNING name;
