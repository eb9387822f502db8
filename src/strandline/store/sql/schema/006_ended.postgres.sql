-- The last life of each purged key, so that the next one has another number. Neither the key nor any data of it.
CREATE TABLE IF NOT EXISTS {schema}.ended (
    slice integer NOT NULL,
    key_digest bytea NOT NULL,
    life bigint NOT NULL,
    partition integer NOT NULL,
    log_offset bigint NOT NULL,
    digest bigint NOT NULL,
    PRIMARY KEY (slice, key_digest)
);
