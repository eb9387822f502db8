-- Rows that a repair or rebuild put back: a projection may have passed their places.
CREATE TABLE repaired (
    partition INTEGER NOT NULL,
    number INTEGER NOT NULL,
    key TEXT NOT NULL,
    life INTEGER NOT NULL,
    seq_nr INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    tag TEXT,
    tag_seq_nr INTEGER,
    digest INTEGER NOT NULL,
    PRIMARY KEY (partition, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX repaired_by_key ON repaired (key, life);
