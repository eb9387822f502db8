-- Records that are not ours, and the bytes of damaged values, with the reason.
CREATE TABLE IF NOT EXISTS {schema}.quarantine (
    partition integer NOT NULL,
    log_offset bigint NOT NULL,
    timestamp bigint NOT NULL,
    key text {by_bytes},
    reason text NOT NULL,
    header bytea,
    value bytea,
    life bigint,
    first bigint,
    last bigint,
    digest bigint NOT NULL,
    PRIMARY KEY (partition, log_offset)
);
