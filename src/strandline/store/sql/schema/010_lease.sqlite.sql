-- Who carries. The fence only grows; the row is never removed.
CREATE TABLE lease (
    name TEXT PRIMARY KEY,
    fence INTEGER NOT NULL,
    holder TEXT,
    since INTEGER,
    errors TEXT
) STRICT, WITHOUT ROWID;
