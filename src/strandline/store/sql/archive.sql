-- Events that went into an archive: what the store keeps of it, and how their rows leave.

-- name: keep
-- Keep a text in the settings.
INSERT INTO {schema}.setting (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: kept
-- A text of the settings.
SELECT value FROM {schema}.setting WHERE name = $1::text;

-- name: mark_archived (postgres)
-- Let heads, given by columns, say up to which number the events of their lives are in the archive.
UPDATE {schema}.metajournal AS head SET archive_life = given.life, archive_to = given.archive_to
FROM unnest($1::text[], $2::integer[], $3::text[], $4::bigint[], $5::bigint[])
    AS given (entity_type, slice, key, life, archive_to)
WHERE head.entity_type = given.entity_type AND head.slice = given.slice AND head.key = given.key
    AND head.life = given.life;

-- name: mark_archived (sqlite)
-- Let a head say up to which number the events of its life are in the archive.
UPDATE metajournal SET archive_life = ?4, archive_to = ?5
WHERE entity_type = ?1 AND slice = ?2 AND key = ?3 AND life = ?4;

-- name: remove_archived (postgres)
-- Remove events, given by columns, that stand at these places with these digests.
DELETE FROM {schema}.journal AS stands
USING unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
    AS given (key, life, segment, seq_nr, digest)
WHERE stands.key = given.key AND stands.life = given.life AND stands.segment = given.segment
    AND stands.seq_nr = given.seq_nr AND stands.digest = given.digest;

-- name: remove_archived (sqlite)
-- Remove the event that stands at this place with this digest.
DELETE FROM journal WHERE key = ?1 AND life = ?2 AND segment = ?3 AND seq_nr = ?4 AND digest = ?5;
