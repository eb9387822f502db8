-- Heads. The segment of the key's hash is its slice. `remembered` is JSON; the digest is over all columns before
-- it. What archiving moves is written without the rest, and stands behind it.
CREATE TABLE metajournal (
    entity_type TEXT NOT NULL,
    slice INTEGER NOT NULL,
    key TEXT NOT NULL,
    seq_nr INTEGER NOT NULL,
    delete_to INTEGER NOT NULL,
    life INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    log_offset INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    expire_after_us INTEGER,
    expire_at INTEGER,
    segment_size INTEGER NOT NULL,
    prev INTEGER NOT NULL,
    removed_to INTEGER NOT NULL,
    remembered TEXT NOT NULL,
    digest INTEGER NOT NULL,
    archive_life INTEGER,
    archive_to INTEGER,
    PRIMARY KEY (entity_type, slice, key)
) STRICT;
