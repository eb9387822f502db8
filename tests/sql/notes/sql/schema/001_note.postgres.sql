-- Notes.
CREATE TABLE IF NOT EXISTS {schema}.note_page (
    name text {by_bytes} NOT NULL PRIMARY KEY,
    number bigint,
    done boolean NOT NULL,
    weight double precision NOT NULL,
    body bytea,
    CHECK (number <> 13)
);
