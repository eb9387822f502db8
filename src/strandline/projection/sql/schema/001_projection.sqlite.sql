-- Projections, a row for each generation. `fence` is the largest that any of its ranges ever had.
CREATE TABLE projection (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    generation INTEGER NOT NULL,
    state TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    source TEXT NOT NULL,
    start INTEGER NOT NULL,
    line INTEGER NOT NULL,
    paused INTEGER NOT NULL,
    wanted INTEGER,
    fence INTEGER NOT NULL,
    history_id TEXT NOT NULL,
    UNIQUE (name, generation)
) STRICT;
-- Who runs a projection, and when it last said so.
CREATE TABLE projection_host (
    projection TEXT NOT NULL,
    host TEXT NOT NULL,
    beat INTEGER NOT NULL,
    PRIMARY KEY (projection, host)
) STRICT, WITHOUT ROWID;
-- Ranges of slices. Those of an epoch cover all slices at all times. `saves` grows with every save.
CREATE TABLE projection_range (
    projection TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    lo INTEGER NOT NULL,
    hi INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    owner TEXT,
    position INTEGER NOT NULL,
    saves INTEGER NOT NULL,
    claims INTEGER NOT NULL,
    trying TEXT,
    failed TEXT,
    retry_at INTEGER NOT NULL,
    restarts INTEGER NOT NULL,
    counts TEXT NOT NULL,
    PRIMARY KEY (projection, epoch, lo)
) STRICT, WITHOUT ROWID;
-- Rich offsets: the last event done of each key. A row with an empty key is that of a slice: its position.
CREATE TABLE projection_offset (
    projection TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    slice INTEGER NOT NULL,
    key TEXT NOT NULL,
    life INTEGER NOT NULL,
    seq_nr INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    parked INTEGER,
    PRIMARY KEY (projection, epoch, slice, key)
) STRICT, WITHOUT ROWID;
-- The keys that wait, found without the others.
CREATE INDEX projection_offset_parked ON projection_offset (projection, epoch, key) WHERE parked IS NOT NULL;
-- What the owner of a range is asked to do.
CREATE TABLE projection_request (
    id TEXT PRIMARY KEY,
    projection TEXT NOT NULL,
    asked INTEGER NOT NULL,
    verb TEXT NOT NULL,
    slice INTEGER NOT NULL,
    key TEXT NOT NULL,
    life INTEGER NOT NULL,
    seq_nr INTEGER NOT NULL,
    refused TEXT
) STRICT;
-- Events that were not handled, without their payload: a purge must not leave one.
CREATE TABLE projection_dead_letter (
    projection TEXT NOT NULL,
    key TEXT NOT NULL,
    life INTEGER NOT NULL,
    seq_nr INTEGER NOT NULL,
    slice INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    error_type TEXT NOT NULL,
    message TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (projection, key, life, seq_nr)
) STRICT, WITHOUT ROWID;
