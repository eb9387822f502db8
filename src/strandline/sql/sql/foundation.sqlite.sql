-- What every part has: which steps of its schema are done, and what its creation fixed.
CREATE TABLE IF NOT EXISTS {prefix}schema_step (
    nr INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    additive INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS {prefix}setting (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
