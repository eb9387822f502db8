-- Rows that a repair or rebuild put back: a projection may have passed their places.
CREATE TABLE IF NOT EXISTS {schema}.repaired (
    partition integer NOT NULL,
    number bigint NOT NULL,
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    seq_nr bigint NOT NULL,
    timestamp bigint NOT NULL,
    tag text {by_bytes},
    tag_seq_nr bigint,
    digest bigint NOT NULL,
    PRIMARY KEY (partition, number)
);

CREATE INDEX IF NOT EXISTS repaired_by_key ON {schema}.repaired (key, life);
