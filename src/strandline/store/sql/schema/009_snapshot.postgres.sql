-- States that users saved.
CREATE TABLE IF NOT EXISTS {schema}.snapshot (
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    seq_nr bigint NOT NULL,
    timestamp bigint NOT NULL,
    form integer NOT NULL,
    state bytea NOT NULL,
    digest bigint NOT NULL,
    PRIMARY KEY (key, life, seq_nr)
);
