-- Events, in the order of EventRow. The body has all of an event; the other columns are what is sought and sorted by.
CREATE TABLE IF NOT EXISTS {schema}.journal (
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    segment bigint NOT NULL,
    seq_nr bigint NOT NULL,
    prev_seq_nr bigint NOT NULL,
    entity_type text {by_bytes} NOT NULL,
    slice integer NOT NULL,
    partition integer NOT NULL,
    timestamp bigint NOT NULL,
    body bytea NOT NULL,
    digest bigint NOT NULL,
    PRIMARY KEY (key, life, segment, seq_nr)
);
