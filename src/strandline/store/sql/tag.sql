-- Events by tag: the view, and how many events of each tag a key has.

-- step: 012_tag_view
-- Events by tag, in the order of TagRow. A key's numbers under a tag are unique; the index tells where its rows are.
CREATE TABLE IF NOT EXISTS {schema}.tag_view (
    tag text {by_bytes} NOT NULL,
    bucket bigint NOT NULL,
    timestamp bigint NOT NULL,
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    tag_seq_nr bigint NOT NULL,
    previous_timestamp bigint NOT NULL,
    previous_seq_nr bigint NOT NULL,
    row_digest bigint NOT NULL,
    seq_nr bigint NOT NULL,
    prev_seq_nr bigint NOT NULL,
    body bytea NOT NULL,
    digest bigint NOT NULL,
    PRIMARY KEY (tag, timestamp, key, seq_nr)
) {rowless};

CREATE UNIQUE INDEX IF NOT EXISTS tag_view_by_key ON {schema}.tag_view (key, life, tag, tag_seq_nr);

-- How far each key is in the views of its tags.
CREATE TABLE IF NOT EXISTS {schema}.tag_progress (
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    tag text {by_bytes} NOT NULL,
    first_seq_nr bigint NOT NULL,
    seq_nr bigint NOT NULL,
    tag_seq_nr bigint NOT NULL,
    timestamp bigint NOT NULL,
    digest bigint NOT NULL,
    PRIMARY KEY (key, life, tag)
) WITH (fillfactor = 70) {rowless};

-- name: put_tag_view (postgres)
-- Add rows to views of tags. The same row again changes nothing; one that says something else is a constraint error.
INSERT INTO {schema}.tag_view AS there (
    tag, bucket, timestamp, key, life, tag_seq_nr, previous_timestamp, previous_seq_nr, row_digest, seq_nr, prev_seq_nr,
    body, digest
)
SELECT
    unnest($1::text[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::text[]), unnest($5::bigint[]),
    unnest($6::bigint[]), unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::bigint[]), unnest($10::bigint[]),
    unnest($11::bigint[]), unnest($12::bytea[]), unnest($13::bigint[])
ON CONFLICT (tag, timestamp, key, seq_nr) DO UPDATE
SET row_digest = NULL
WHERE there.row_digest <> excluded.row_digest OR there.digest <> excluded.digest;

-- name: put_tag_view (sqlite)
-- Add a row to a tag's view. The same row again changes nothing; one that says something else is a constraint error.
INSERT INTO tag_view (tag, bucket, timestamp, key, life, tag_seq_nr, previous_timestamp, previous_seq_nr, row_digest,
    seq_nr, prev_seq_nr, body, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tag, timestamp, key, seq_nr) DO UPDATE
SET row_digest = NULL
WHERE row_digest <> excluded.row_digest OR digest <> excluded.digest;

-- name: tag_by_number
-- Rows of a key and life under a tag, by their numbers.
SELECT tag, bucket, timestamp, key, life, tag_seq_nr, previous_timestamp, previous_seq_nr, row_digest, seq_nr,
    prev_seq_nr, body, digest
FROM {schema}.tag_view
WHERE key = $1 AND life = $2::bigint AND tag = $3 AND tag_seq_nr > $4::bigint AND tag_seq_nr <= $5::bigint
ORDER BY tag_seq_nr LIMIT $6;

-- name: tag_of_key
-- Rows of a key, of all its lives and tags.
SELECT tag, bucket, timestamp, key, life, tag_seq_nr, previous_timestamp, previous_seq_nr, row_digest, seq_nr,
    prev_seq_nr, body, digest
FROM {schema}.tag_view
WHERE key = $1::text AND (life, tag, tag_seq_nr) > ($2::bigint, $3::text, $4::bigint)
ORDER BY life, tag, tag_seq_nr LIMIT $5::bigint;

-- name: tag_by_time (postgres)
-- Rows of a tag by their places: timestamp, key, seq_nr; without bodies that are larger than $7. Both bounds are places
-- in the index, and nothing is said to be equal: in a table without statistics PostgreSQL takes that for few rows, and
-- sorts all of them for every page.
SELECT tag, bucket, timestamp, key, life, tag_seq_nr, previous_timestamp, previous_seq_nr, row_digest, seq_nr,
    prev_seq_nr, CASE WHEN octet_length(body) <= $7::bigint THEN body END, digest
FROM {schema}.tag_view
WHERE (tag, timestamp, key, seq_nr) > ($1::text, $2::bigint, $3::text, $4::bigint)
    AND (tag, timestamp) <= ($1::text, $5::bigint)
ORDER BY tag, timestamp, key, seq_nr LIMIT $6::bigint;

-- name: tag_by_time (sqlite)
-- Rows of a tag by their places: timestamp, key, seq_nr; without bodies that are larger than $7.
SELECT tag, bucket, timestamp, key, life, tag_seq_nr, previous_timestamp, previous_seq_nr, row_digest, seq_nr,
    prev_seq_nr, CASE WHEN length(body) <= $7::bigint THEN body END, digest
FROM {schema}.tag_view
WHERE tag = $1::text AND (timestamp, key, seq_nr) > ($2::bigint, $3::text, $4::bigint) AND timestamp <= $5::bigint
ORDER BY timestamp, key, seq_nr LIMIT $6::bigint;

-- name: tag_progress_of
-- How far a key and life is in the views of its tags.
SELECT key, life, tag, first_seq_nr, seq_nr, tag_seq_nr, timestamp, digest
FROM {schema}.tag_progress
WHERE key = $1 AND life = $2::bigint AND tag > $3
ORDER BY tag LIMIT $4;

-- name: tags (postgres)
-- Tags that have rows, after one of them: one seek for each.
WITH RECURSIVE found (tag) AS (
    (SELECT tag FROM {schema}.tag_view WHERE tag > $1::text ORDER BY tag LIMIT 1)
    UNION ALL
    SELECT (SELECT later.tag FROM {schema}.tag_view AS later WHERE later.tag > found.tag ORDER BY later.tag LIMIT 1)
    FROM found WHERE found.tag IS NOT NULL
)
SELECT tag FROM found WHERE tag IS NOT NULL LIMIT $2;

-- name: tags (sqlite)
WITH RECURSIVE found (tag) AS (
    SELECT min(tag) FROM tag_view WHERE tag > ?1
    UNION ALL
    SELECT (SELECT min(tag) FROM tag_view WHERE tag > found.tag) FROM found WHERE found.tag IS NOT NULL
)
SELECT tag FROM found WHERE tag IS NOT NULL LIMIT ?2;
