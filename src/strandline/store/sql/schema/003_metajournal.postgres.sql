-- Heads. The segment of the key's hash is its slice. `remembered` is JSON; the digest is over all other columns.
CREATE TABLE IF NOT EXISTS {schema}.metajournal (
    entity_type text {by_bytes} NOT NULL,
    slice integer NOT NULL,
    key text {by_bytes} NOT NULL,
    seq_nr bigint NOT NULL,
    delete_to bigint NOT NULL,
    life bigint NOT NULL,
    partition integer NOT NULL,
    log_offset bigint NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    expire_after_us bigint,
    expire_at bigint,
    segment_size bigint NOT NULL,
    archive_to bigint NOT NULL,
    prev bigint NOT NULL,
    removed_to bigint NOT NULL,
    remembered text NOT NULL,
    digest bigint NOT NULL,
    PRIMARY KEY (entity_type, slice, key)
) WITH (fillfactor = 70);
