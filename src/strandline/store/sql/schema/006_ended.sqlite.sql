-- The last life of each purged key, so that the next one has another number. Neither the key nor any data of it.
CREATE TABLE ended (
    slice INTEGER NOT NULL,
    key_digest BLOB NOT NULL,
    life INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    log_offset INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    PRIMARY KEY (slice, key_digest)
) STRICT, WITHOUT ROWID;
