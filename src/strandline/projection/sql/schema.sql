-- The tables of projections.

-- step: 001_projection
-- Projections, a row for each generation. `fence` is the largest that any of its ranges ever had. `revisions` are those of
-- the store's pointers when the epoch began, as a JSON list: rows that were put back before are read in their places.
CREATE TABLE {schema}.projection (
    id text {by_bytes} PRIMARY KEY,
    name text {by_bytes} NOT NULL,
    generation bigint NOT NULL,
    state text {by_bytes} NOT NULL,
    epoch bigint NOT NULL,
    source text {by_bytes} NOT NULL,
    start bigint NOT NULL,
    line bigint NOT NULL,
    paused bigint NOT NULL,
    target_ranges bigint,
    fence bigint NOT NULL,
    history_id text {by_bytes} NOT NULL,
    revisions text NOT NULL,
    UNIQUE (name, generation)
);
-- Who runs a projection, when it last said so, how long it lives after that, and since when it runs it (µs).
CREATE TABLE {schema}.projection_host (
    projection text {by_bytes} NOT NULL,
    host text {by_bytes} NOT NULL,
    beat bigint NOT NULL,
    lease_us bigint NOT NULL,
    since bigint NOT NULL,
    PRIMARY KEY (projection, host)
) {rowless};
-- Ranges of slices. Those of an epoch cover all slices at all times. `saves` grows with every save.
CREATE TABLE {schema}.projection_range (
    projection text {by_bytes} NOT NULL,
    epoch bigint NOT NULL,
    lo bigint NOT NULL,
    hi bigint NOT NULL,
    fence bigint NOT NULL,
    owner text {by_bytes},
    position bigint NOT NULL,
    saves bigint NOT NULL,
    unclean_claims bigint NOT NULL,
    attempt text {by_bytes},
    failed text {by_bytes},
    retry_at bigint NOT NULL,
    restarts bigint NOT NULL,
    counts text {by_bytes} NOT NULL,
    PRIMARY KEY (projection, epoch, lo)
) {rowless};
-- Rich offsets: the last event done of each key. A row with an empty key is that of a slice: its position.
CREATE TABLE {schema}.projection_offset (
    projection text {by_bytes} NOT NULL,
    epoch bigint NOT NULL,
    slice bigint NOT NULL,
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    seq_nr bigint NOT NULL,
    timestamp bigint NOT NULL,
    parked bigint,
    PRIMARY KEY (projection, epoch, slice, key)
) {rowless};
-- The keys that wait, found without the others.
CREATE INDEX projection_offset_parked ON {schema}.projection_offset (projection, epoch, key) WHERE parked IS NOT NULL;
-- What the owner of a range is asked to do.
CREATE TABLE {schema}.projection_request (
    id text {by_bytes} PRIMARY KEY,
    projection text {by_bytes} NOT NULL,
    asked bigint NOT NULL,
    verb text {by_bytes} NOT NULL,
    slice bigint NOT NULL,
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    seq_nr bigint NOT NULL,
    refused text {by_bytes}
);
-- Events that were not handled, without their payload: a purge must not leave one.
CREATE TABLE {schema}.projection_dead_letter (
    projection text {by_bytes} NOT NULL,
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    seq_nr bigint NOT NULL,
    slice bigint NOT NULL,
    timestamp bigint NOT NULL,
    attempts bigint NOT NULL,
    first_at bigint NOT NULL,
    last_at bigint NOT NULL,
    error_type text {by_bytes} NOT NULL,
    message text {by_bytes} NOT NULL,
    reason text {by_bytes} NOT NULL,
    PRIMARY KEY (projection, key, life, seq_nr)
) {rowless};
-- Events that were put back behind a projection, and that an operator handed over or discarded.
CREATE TABLE {schema}.projection_settled (
    projection text {by_bytes} NOT NULL,
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    seq_nr bigint NOT NULL,
    PRIMARY KEY (projection, key, life, seq_nr)
) {rowless};
