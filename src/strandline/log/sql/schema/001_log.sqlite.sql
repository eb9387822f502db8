-- The action log: actions in the order of their commits, where to find those of a partition, the head of each key, a
-- trace of each ended life, and how far each partition was trimmed.

-- All partitions share one table that only grows at its end: a commit then writes few pages, whatever it has in it.
-- life, first and last say what the fold made of the action; state is what it made of the key's head, but for
-- what the rest of the row tells; key_hash is 64 bits of a digest of the key.
CREATE TABLE action (
    seq INTEGER PRIMARY KEY,
    partition INTEGER NOT NULL,
    log_offset INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    key_hash INTEGER,
    life INTEGER,
    first INTEGER,
    last INTEGER,
    state TEXT,
    key TEXT,
    header BLOB,
    value BLOB
) STRICT;

-- Where the actions of a partition are. Filled some hundred actions at a time: it has those up to placed.seq.
CREATE TABLE place (
    partition INTEGER NOT NULL,
    log_offset INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    key_hash INTEGER,
    seq INTEGER NOT NULL,
    PRIMARY KEY (partition, log_offset)
) STRICT, WITHOUT ROWID;

CREATE TABLE placed (seq INTEGER NOT NULL) STRICT;
INSERT INTO placed (seq) VALUES (0);

-- For every key that was ever used, by its hash: the last action that changed its head, and so has it. Nothing if the
-- head is elsewhere: in table head, or in none, because the key was purged.
CREATE TABLE latest (
    key_hash INTEGER PRIMARY KEY,
    seq INTEGER
) STRICT, WITHOUT ROWID;

-- Heads whose last action was trimmed, and those of keys whose hash another key has already.
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
