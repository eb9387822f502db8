-- Notes.
CREATE TABLE note_page (
    name TEXT NOT NULL PRIMARY KEY,
    number INTEGER,
    done INTEGER NOT NULL,
    weight REAL NOT NULL,
    body BLOB
) STRICT;
