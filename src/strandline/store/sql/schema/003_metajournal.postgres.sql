-- Heads. The segment of the key's hash is its slice. `remembered` is JSON; the digest is over all columns before
-- it. What archiving moves is written without the rest, and stands behind it.
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
    prev bigint NOT NULL,
    removed_to bigint NOT NULL,
    remembered text NOT NULL,
    digest bigint NOT NULL,
    archive_life bigint,
    archive_to bigint,
    PRIMARY KEY (entity_type, slice, key)
) WITH (fillfactor = 70);
