-- States that users saved.
CREATE TABLE snapshot (
    key TEXT NOT NULL,
    life INTEGER NOT NULL,
    seq_nr INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    form INTEGER NOT NULL,
    state BLOB NOT NULL,
    digest INTEGER NOT NULL,
    PRIMARY KEY (key, life, seq_nr)
) STRICT;
