-- Ids of adds, and the entries that they went to.

-- name: entries_of_ids (postgres)
-- The entries that adds with these ids went to.
SELECT a.id, a.entry FROM unnest($1::bigint[], $2::bytea[]) AS given (journal, id)
JOIN {schema}.work_added a ON a.journal = given.journal AND a.id = given.id;

-- name: entries_of_ids (sqlite)
-- The entry that the add with this id went to.
SELECT id, entry FROM work_added WHERE journal = $1 AND id = $2;

-- name: forget_ids
-- Forget ids of adds before a date, the oldest first.
DELETE FROM {schema}.work_added WHERE journal = $1::bigint AND id IN (
  SELECT id FROM {schema}.work_added WHERE journal = $1 AND date < $2::bigint ORDER BY date LIMIT $3::bigint);

-- name: keep_ids (postgres)
-- Remember ids of adds.
INSERT INTO {schema}.work_added (journal, id, entry, date)
SELECT $1::bigint, given.* FROM unnest($2::bytea[], $3::bigint[], $4::bigint[]) AS given;

-- name: keep_ids (sqlite)
-- Remember the id of an add.
INSERT INTO work_added (journal, id, entry, date) VALUES ($1, $2, $3, $4);

-- name: oldest_id
-- The date of the oldest add whose id is remembered.
SELECT min(date) FROM {schema}.work_added WHERE journal = $1::bigint;
