-- Add a note.
INSERT INTO {schema}.note_page (name, number, done, weight, body)
VALUES ($1, $2::bigint, $3::boolean, $4::double precision, $5::bytea);
