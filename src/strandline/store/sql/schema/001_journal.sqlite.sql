-- Events, in the order of EventRow. The body has all of an event; the other columns are what is sought and sorted by.
-- With a rowid, measured with payloads of 150 bytes over 2,000 keys: twice the insert
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
    timestamp INTEGER NOT NULL,
    body BLOB NOT NULL,
    digest INTEGER NOT NULL,
    PRIMARY KEY (key, life, segment, seq_nr)
) STRICT;
