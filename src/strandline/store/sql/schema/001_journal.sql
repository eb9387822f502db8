-- Events, in the order of EventRow. With a rowid, measured with payloads of 150 bytes over 2,000 keys: twice the insert
-- rate of a table clustered by key, because rows of a batch lie together; a long journal reads as fast either way.
CREATE TABLE journal (
    key TEXT NOT NULL,
    life INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    seq_nr INTEGER NOT NULL,
    prev_seq_nr INTEGER NOT NULL,
    entity_type TEXT NOT NULL,
    slice INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    log_offset INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    append_id BLOB NOT NULL,
    type TEXT NOT NULL,
    tags TEXT,
    headers TEXT,
    form INTEGER NOT NULL,
    metadata BLOB,
    payload BLOB,
    digest INTEGER NOT NULL,
    PRIMARY KEY (key, life, segment, seq_nr)
) STRICT;
