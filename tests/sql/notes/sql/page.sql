-- Pages of notes.

-- step: 001_note
-- Notes: one step for both dialects.
CREATE TABLE IF NOT EXISTS {schema}.note_page (
    name text {by_bytes} NOT NULL PRIMARY KEY,
    number bigint,
    done boolean NOT NULL,
    weight double precision NOT NULL,
    body bytea,
    CHECK (number <> 13)
);

-- step: 002_by_number
-- Notes by number.
CREATE INDEX IF NOT EXISTS note_by_number ON {schema}.note_page (number);

-- name: add
-- Add a note.
INSERT INTO {schema}.note_page (name, number, done, weight, body)
VALUES ($1, $2::bigint, $3::boolean, $4::double precision, $5::bytea);

-- name: add_many (postgres)
-- Add notes; their names.
INSERT INTO {schema}.note_page (name, number, done, weight, body)
SELECT name, number, done, weight * $1::double precision, body
FROM unnest($2::text[], $3::bigint[], $4::boolean[], $5::double precision[], $6::bytea[])
    AS given (name, number, done, weight, body)
RETURNING name;

-- name: add_many (sqlite)
INSERT INTO note_page (name, number, done, weight, body) VALUES (?2, ?3, ?4, ?5 * ?1, ?6) RETURNING name;

-- name: all
-- All notes by name.
SELECT name, number, done, weight, body FROM {schema}.note_page ORDER BY name;

-- name: finish
-- Notes up to a number are done.
UPDATE {schema}.note_page SET done = $2::boolean WHERE number <= $1::bigint;

-- name: numbered (postgres)
-- Notes with one of these numbers.
SELECT name FROM {schema}.note_page WHERE number = ANY($1::bigint[]) ORDER BY name;

-- name: numbered (sqlite)
SELECT name FROM note_page WHERE number IN (SELECT value FROM json_each(?1)) ORDER BY name;
