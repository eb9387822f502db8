-- The action log: actions in the order of their commits, where to find those of a partition, the state of each
-- key, and how far each partition was trimmed.

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
-- head is in table head.
CREATE TABLE latest (
    key_hash INTEGER PRIMARY KEY,
    seq INTEGER
) STRICT, WITHOUT ROWID;

-- States of keys as JSON: heads whose last action was trimmed, those of keys whose hash another key has already, and of
-- a purged key the number of the ended life, so that the next one goes on counting.
CREATE TABLE head (
    key_digest BLOB PRIMARY KEY,
    state TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Offsets and timestamps go on from here where nothing is left.
CREATE TABLE trimmed (
    partition INTEGER PRIMARY KEY,
    log_offset INTEGER NOT NULL,
    timestamp INTEGER NOT NULL
) STRICT;
