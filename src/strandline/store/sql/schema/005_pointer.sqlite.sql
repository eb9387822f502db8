-- How far each partition is in the store. A partition without a row has nothing in it yet.
CREATE TABLE pointer (
    partition INTEGER PRIMARY KEY,
    log_offset INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    moved INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    digest INTEGER NOT NULL
) STRICT;
