-- The action log: actions in their order, a head per key, a trace of each ended life, and how far each partition was
-- trimmed.

-- place is partition << 53 | offset, so that a partition is one run of the table. life, first and last are what the fold
-- gave to an accepted append.
CREATE TABLE action (
    place INTEGER PRIMARY KEY,
    timestamp INTEGER NOT NULL,
    key TEXT,
    header BLOB,
    value BLOB,
    life INTEGER,
    first INTEGER,
    last INTEGER
) STRICT;

CREATE TABLE head (
    key TEXT PRIMARY KEY,
    seq_nr INTEGER NOT NULL,
    delete_to INTEGER NOT NULL,
    life INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    log_offset INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    expire_after_us INTEGER,
    expire_at INTEGER,
    segment_size INTEGER NOT NULL,
    archive_to INTEGER NOT NULL,
    prev INTEGER NOT NULL,
    removed_to INTEGER NOT NULL,
    remembered TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Neither the key nor any data of it: only what the next life needs to go on counting.
CREATE TABLE ended (
    key_digest BLOB PRIMARY KEY,
    life INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    log_offset INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Offsets and timestamps go on from here where nothing is left.
CREATE TABLE trimmed (
    partition INTEGER PRIMARY KEY,
    log_offset INTEGER NOT NULL,
    timestamp INTEGER NOT NULL
) STRICT;
