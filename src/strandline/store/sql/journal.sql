-- Events, a row each, and their index for queries by slices.

-- step: 001_journal
-- Events, in the order of EventRow. The body has all of an event; the other columns are what is sought and sorted by.
-- In SQLite with a rowid, measured with payloads of 150 bytes over 2,000 keys: twice the insert rate of a table clustered
-- by key, because rows of a batch lie together; a long journal reads as fast either way.
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
-- Events of an entity type and partition by time; key and slice are there so that slices are chosen without the row.
CREATE INDEX IF NOT EXISTS journal_by_slices
ON {schema}.journal (entity_type, partition, timestamp, seq_nr, key, slice);

-- name: delete_journal
-- Remove events of a life from one number to another, which stand in these segments.
DELETE FROM {schema}.journal
WHERE key = $1 AND life = $2 AND (segment, seq_nr) >= ($5, $3) AND (segment, seq_nr) <= ($6, $4);

-- name: event_types (sqlite)
-- Entity types that have events: one seek in the index for each.
WITH RECURSIVE found (entity_type) AS (
    SELECT min(entity_type) FROM journal
    UNION ALL
    SELECT (SELECT min(entity_type) FROM journal WHERE entity_type > found.entity_type)
    FROM found WHERE found.entity_type IS NOT NULL
)
SELECT entity_type FROM found WHERE entity_type IS NOT NULL;

-- name: page
-- Events of a life by seq_nr. Both bounds are places in the primary key, so a page deep in a journal seeks.
-- A body larger than that is left out, its size is given for its digest: a page of them may be larger than memory.
SELECT seq_nr, prev_seq_nr, CASE WHEN octet_length(body) <= $8::bigint THEN body END,
    CASE WHEN octet_length(body) <= $8::bigint THEN digest ELSE octet_length(body) END
FROM {schema}.journal
WHERE key = $1::text AND life = $2::bigint
    AND (segment, seq_nr) >= ($3::bigint, $4::bigint) AND (segment, seq_nr) <= ($5::bigint, $6::bigint)
ORDER BY segment, seq_nr LIMIT $7::bigint;

-- name: page_backwards
-- The last events of a life first. Both bounds are places in the primary key, so this seeks, too.
-- A body larger than that is left out, its size is given for its digest: a page of them may be larger than memory.
SELECT seq_nr, prev_seq_nr, CASE WHEN octet_length(body) <= $8::bigint THEN body END,
    CASE WHEN octet_length(body) <= $8::bigint THEN digest ELSE octet_length(body) END
FROM {schema}.journal
WHERE key = $1::text AND life = $2::bigint
    AND (segment, seq_nr) >= ($3::bigint, $4::bigint) AND (segment, seq_nr) <= ($5::bigint, $6::bigint)
ORDER BY segment DESC, seq_nr DESC LIMIT $7::bigint;

-- name: put_journal (postgres)
-- Add events, given by columns. Another one at the place of one of them is a unique violation.
INSERT INTO {schema}.journal (
    key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
)
SELECT
    unnest($1::text[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::bigint[]),
    unnest($6::text[]), unnest($7::integer[]), unnest($8::integer[]), unnest($9::bigint[]), unnest($10::bytea[]),
    unnest($11::bigint[]);

-- name: put_journal (sqlite)
-- Add an event. Another one at its place is a constraint error.
INSERT INTO journal (key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: range
-- Events of an entity type and partition by time, within slices. Both bounds are places in the index, which has the
-- slice too: what lies beyond is not touched, and what is of another slice is passed over without its row.
SELECT key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
FROM {schema}.journal
WHERE entity_type = $1 AND partition = $2 AND slice >= $3 AND slice <= $4
    AND (timestamp, seq_nr) > ($5, $6) AND (timestamp, seq_nr) <= ($7, 9223372036854775807)
ORDER BY timestamp, seq_nr LIMIT $8;

-- name: range_of_all (postgres)
-- The same for all entity types: of each the first events, one seek in the index for each type, and of these the first.
WITH RECURSIVE types (entity_type) AS (
    (SELECT entity_type FROM {schema}.journal ORDER BY entity_type LIMIT 1)
    UNION ALL
    SELECT (
        SELECT later.entity_type FROM {schema}.journal AS later WHERE later.entity_type > types.entity_type
        ORDER BY later.entity_type LIMIT 1
    )
    FROM types WHERE types.entity_type IS NOT NULL
)
SELECT found.* FROM types CROSS JOIN LATERAL (
    SELECT key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
    FROM {schema}.journal
    WHERE entity_type = types.entity_type AND partition = $1 AND slice >= $2 AND slice <= $3
        AND (timestamp, seq_nr) > ($4, $5) AND (timestamp, seq_nr) <= ($6, 9223372036854775807)
    ORDER BY timestamp, seq_nr LIMIT $7
) AS found
ORDER BY found.timestamp, found.seq_nr LIMIT $7;

-- name: slice_places (postgres)
-- The same without bodies: for who reads again what was mostly read before.
SELECT timestamp, seq_nr, key, life, prev_seq_nr
FROM {schema}.journal
WHERE (entity_type, partition, timestamp, seq_nr, key) > ($1::text, $2::integer, $5::bigint, $6::bigint, $7::text)
    AND (entity_type, partition, timestamp) <= ($1::text, $2::integer, $8::bigint)
    AND slice >= $3::integer AND slice <= $4::integer
ORDER BY entity_type, partition, timestamp, seq_nr, key LIMIT $9::bigint;

-- name: slice_places (sqlite)
SELECT timestamp, seq_nr, key, life, prev_seq_nr
FROM {schema}.journal
WHERE entity_type = $1 AND partition = $2 AND slice >= $3 AND slice <= $4
    AND (timestamp, seq_nr, key) > ($5, $6, $7) AND (timestamp, seq_nr) <= ($8, 9223372036854775807)
ORDER BY timestamp, seq_nr, key LIMIT $9;

-- name: slice_rows (postgres)
-- Events of an entity type and partition by their places: timestamp, seq_nr, key; within slices. Both bounds are places in
-- the index, which has the slice too: what is of another slice is passed over without its row. Nothing but the slice is
-- said to be equal or between: in a table without statistics PostgreSQL takes that for few rows, and sorts all of them
-- for every page. Bodies above 16 KiB are left out.
SELECT timestamp, seq_nr, key, life, prev_seq_nr, CASE WHEN octet_length(body) <= 16384 THEN body END, digest
FROM {schema}.journal
WHERE (entity_type, partition, timestamp, seq_nr, key) > ($1::text, $2::integer, $5::bigint, $6::bigint, $7::text)
    AND (entity_type, partition, timestamp) <= ($1::text, $2::integer, $8::bigint)
    AND slice >= $3::integer AND slice <= $4::integer
ORDER BY entity_type, partition, timestamp, seq_nr, key LIMIT $9::bigint;

-- name: slice_rows (sqlite)
-- Events of an entity type and partition by their places: timestamp, seq_nr, key; within slices. Both bounds are places in
-- the index, which has the slice too: what is of another slice is passed over without its row. Bodies above 16 KiB are
-- left out.
SELECT timestamp, seq_nr, key, life, prev_seq_nr, CASE WHEN octet_length(body) <= 16384 THEN body END, digest
FROM {schema}.journal
WHERE entity_type = $1 AND partition = $2 AND slice >= $3 AND slice <= $4
    AND (timestamp, seq_nr, key) > ($5, $6, $7) AND (timestamp, seq_nr) <= ($8, 9223372036854775807)
ORDER BY timestamp, seq_nr, key LIMIT $9;

-- name: standing (postgres)
-- Those of these events, given by columns, that have one at their place; and whether it is the same.
SELECT given.key, given.life, given.seq_nr, (
    stands.prev_seq_nr, stands.entity_type, stands.slice, stands.partition, stands.timestamp, stands.body, stands.digest
) = (
    given.prev_seq_nr, given.entity_type, given.slice, given.partition, given.timestamp, given.body, given.digest
)
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::integer[], $8::integer[],
    $9::bigint[], $10::bytea[], $11::bigint[]
) AS given (
    key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
)
JOIN {schema}.journal AS stands
ON stands.key = given.key AND stands.life = given.life AND stands.segment = given.segment
    AND stands.seq_nr = given.seq_nr;

-- name: standing (sqlite)
-- The event that stands at the place of this one, and whether it is the same.
SELECT key, life, seq_nr,
    (prev_seq_nr, entity_type, slice, partition, timestamp, body, digest) = (?5, ?6, ?7, ?8, ?9, ?10, ?11)
FROM journal WHERE key = ?1 AND life = ?2 AND segment = ?3 AND seq_nr = ?4;

-- name: standing_events (postgres)
-- The events that stand at these places.
SELECT stands.key, stands.life, stands.segment, stands.seq_nr, stands.prev_seq_nr, stands.entity_type, stands.slice,
    stands.partition, stands.timestamp, stands.body, stands.digest
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS place (key, life, segment, seq_nr)
JOIN {schema}.journal AS stands
ON stands.key = place.key AND stands.life = place.life AND stands.segment = place.segment
    AND stands.seq_nr = place.seq_nr;

-- name: standing_events (sqlite)
-- The event that stands at a place.
SELECT key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
FROM journal WHERE key = ?1 AND life = ?2 AND segment = ?3 AND seq_nr = ?4;
