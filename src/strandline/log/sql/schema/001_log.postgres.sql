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
-- the ended life are left.
CREATE TABLE IF NOT EXISTS {schema}.log_head (
    key_digest bytea NOT NULL PRIMARY KEY,
    state text NOT NULL
) WITH (fillfactor = 70);
