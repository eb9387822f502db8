-- Heads: what is known of each key; and keys whose last life has ended.

-- step: 003_metajournal
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
-- Keys that will expire, by when.
CREATE INDEX IF NOT EXISTS metajournal_by_expiry
ON {schema}.metajournal (expire_at, key) WHERE expire_at IS NOT NULL;

-- step: 006_ended
-- The last life of each purged key, so that the next one has another number. Neither the key nor any data of it.
CREATE TABLE IF NOT EXISTS {schema}.ended (
    slice integer NOT NULL,
    key_digest bytea NOT NULL,
    life bigint NOT NULL,
    partition integer NOT NULL,
    log_offset bigint NOT NULL,
    digest bigint NOT NULL,
    PRIMARY KEY (slice, key_digest)
) {rowless};

-- name: entity_types
-- Entity types that have a head, after one of them: one seek for each.
WITH RECURSIVE found (entity_type) AS (
    SELECT min(entity_type) FROM {schema}.metajournal WHERE entity_type > $1
    UNION ALL
    SELECT (SELECT min(entity_type) FROM {schema}.metajournal WHERE entity_type > found.entity_type)
    FROM found WHERE found.entity_type IS NOT NULL
)
SELECT entity_type FROM found WHERE entity_type IS NOT NULL LIMIT $2;

-- name: expired
-- Keys that may be purged, by when they expired.
SELECT expire_at, key, log_offset FROM {schema}.metajournal
WHERE expire_at IS NOT NULL AND (expire_at, key) > ($1, $2) AND expire_at <= $3
ORDER BY expire_at, key LIMIT $4;

-- name: heads_of_type
-- What was taken of the keys with a head, by slice, then by their bytes, after a place, up to a slice.
SELECT slice, key, delete_to, life FROM {schema}.metajournal
WHERE entity_type = $1 AND (slice, key) > ($2, $3) AND (slice, key) < ($4 + 1, '')
ORDER BY slice, key LIMIT $5;

-- name: keys
-- Keys with a head, by slice, then by their bytes, after a place, up to a slice.
SELECT slice, key FROM {schema}.metajournal
WHERE entity_type = $1 AND (slice, key) > ($2, $3) AND (slice, key) < ($4 + 1, '')
ORDER BY slice, key LIMIT $5;

-- name: look
-- A partition's pointer, and head and ended life of a key, of one moment.
SELECT p.partition, p.log_offset, p.timestamp, p.last_action_at, p.fence, p.revision, p.digest,
    k.entity_type, k.slice, k.key, m.seq_nr, m.delete_to, m.life, m.partition, m.log_offset, m.created, m.updated,
    m.expire_after_us, m.expire_at, m.segment_size, m.prev, m.removed_to, m.remembered, m.digest, m.archive_life, m.archive_to,
    e.slice, e.key_digest, e.life, e.partition, e.log_offset, e.digest
FROM (
    SELECT $1::integer AS partition, $2::text AS entity_type, $3::integer AS slice, $4::text AS key,
        $5::integer AS ended_slice, $6::bytea AS key_digest
) AS k
LEFT JOIN {schema}.pointer AS p ON p.partition = k.partition
LEFT JOIN {schema}.metajournal AS m ON m.entity_type = k.entity_type AND m.slice = k.slice AND m.key = k.key
LEFT JOIN {schema}.ended AS e ON e.slice = k.ended_slice AND e.key_digest = k.key_digest;

-- name: purge_metajournal
-- Remove a head.
DELETE FROM {schema}.metajournal WHERE entity_type = $1 AND slice = $2 AND key = $3;

-- name: put_ended
-- Keep the number of a life that ended. It never goes back.
INSERT INTO {schema}.ended AS stands (slice, key_digest, life, partition, log_offset, digest)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (slice, key_digest) DO UPDATE
SET life = excluded.life, partition = excluded.partition, log_offset = excluded.log_offset, digest = excluded.digest
WHERE excluded.life > stands.life;

-- name: states (postgres)
-- A partition's pointer, and heads and ended lives of those of some keys that have one, of one moment.
SELECT p.partition, p.log_offset, p.timestamp, p.last_action_at, p.fence, p.revision, p.digest, found.*
FROM (SELECT $1::integer AS partition) AS asked
LEFT JOIN {schema}.pointer AS p ON p.partition = asked.partition
LEFT JOIN (
    SELECT k.entity_type, k.slice, k.key, m.seq_nr, m.delete_to, m.life, m.partition AS head_partition,
        m.log_offset AS head_offset, m.created, m.updated, m.expire_after_us, m.expire_at, m.segment_size, m.prev,
        m.removed_to, m.remembered, m.digest AS head_digest, m.archive_life, m.archive_to, e.slice AS ended_slice,
        e.key_digest, e.life AS ended_life, e.partition AS ended_partition, e.log_offset AS ended_offset,
        e.digest AS ended_digest
    FROM unnest($2::text[], $3::integer[], $4::text[], $5::integer[], $6::bytea[])
        AS k (entity_type, slice, key, ended_slice, key_digest)
    LEFT JOIN {schema}.metajournal AS m ON m.entity_type = k.entity_type AND m.slice = k.slice AND m.key = k.key
    LEFT JOIN {schema}.ended AS e ON e.slice = k.ended_slice AND e.key_digest = k.key_digest
    WHERE m.key IS NOT NULL OR e.key_digest IS NOT NULL
) AS found ON true;

-- name: states (sqlite)
-- Head and ended life of a key, in one row, behind the place of a pointer.
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    k.entity_type, k.slice, k.key, m.seq_nr, m.delete_to, m.life, m.partition, m.log_offset, m.created, m.updated,
    m.expire_after_us, m.expire_at, m.segment_size, m.prev, m.removed_to, m.remembered, m.digest, m.archive_life, m.archive_to,
    e.slice, e.key_digest, e.life, e.partition, e.log_offset, e.digest
FROM (SELECT ?1 AS entity_type, ?2 AS slice, ?3 AS key, ?4 AS ended_slice, ?5 AS key_digest) AS k
LEFT JOIN metajournal AS m ON m.entity_type = k.entity_type AND m.slice = k.slice AND m.key = k.key
LEFT JOIN ended AS e ON e.slice = k.ended_slice AND e.key_digest = k.key_digest;
