-- The tables of a log.

-- step: 001_log (postgres)
-- The action log: where each partition ends, the actions, and the head of each key.

-- Who appends to a partition holds its row until the commit: the order of offsets is the order of commits, and no reader
-- can miss a late one. Few rows, written by every commit: room on their page keeps the updates on it.
CREATE TABLE IF NOT EXISTS {schema}.log_partition (
    partition integer NOT NULL PRIMARY KEY,
    newest bigint NOT NULL,
    timestamp bigint NOT NULL,
    trimmed bigint NOT NULL
) WITH (fillfactor = 10);

-- life, first and last say what the fold made of the action; key_hash is the first half of the key's digest.
CREATE TABLE IF NOT EXISTS {schema}.log_action (
    partition integer NOT NULL,
    log_offset bigint NOT NULL,
    timestamp bigint NOT NULL,
    key_hash bigint,
    life bigint,
    first bigint,
    last bigint,
    key text {by_bytes},
    header bytea,
    value bytea,
    PRIMARY KEY (partition, log_offset)
);

-- Reading a key touches its own actions alone, however long the tail is.
CREATE INDEX IF NOT EXISTS log_action_by_key ON {schema}.log_action (key_hash, log_offset);

-- States of keys, folded in the transaction of their appends, as JSON. Of a purged key only the digest and the number of
-- the ended life are left. The digest is a checksum of the state, so that a damaged one is not trusted.
CREATE TABLE IF NOT EXISTS {schema}.log_head (
    key_digest bytea NOT NULL PRIMARY KEY,
    state text NOT NULL,
    digest bigint
) WITH (fillfactor = 70);

-- step: 001_log (sqlite)
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
-- head is in table head. The digest is a checksum of the head, so that a damaged one is not trusted.
CREATE TABLE latest (
    key_hash INTEGER PRIMARY KEY,
    seq INTEGER,
    digest INTEGER
) STRICT, WITHOUT ROWID;

-- States of keys as JSON: heads whose last action was trimmed, those of keys whose hash another key has already, and of
-- a purged key the number of the ended life, so that the next one goes on counting.
CREATE TABLE head (
    key_digest BLOB PRIMARY KEY,
    state TEXT NOT NULL,
    digest INTEGER
) STRICT, WITHOUT ROWID;

-- Offsets and timestamps go on from here where nothing is left.
CREATE TABLE trimmed (
    partition INTEGER PRIMARY KEY,
    log_offset INTEGER NOT NULL,
    timestamp INTEGER NOT NULL
) STRICT;
