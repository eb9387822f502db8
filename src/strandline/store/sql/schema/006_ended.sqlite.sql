-- The last life of each purged key, so that the next one has another number. Neither the key nor any data of it.
CREATE TABLE ended (
    key_digest BLOB PRIMARY KEY,
    life INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    log_offset INTEGER NOT NULL,
    digest INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
