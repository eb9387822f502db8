-- Sets of tables: several work journals may share one.

-- name: add_set (postgres)
-- Keep a new set of tables; its numbers are a sequence.
INSERT INTO {schema}.work_set (name, number, settings) SELECT $1::text, $2::bigint, $3::text WHERE $4::bigint > 0;

-- name: add_set (sqlite)
-- Keep a new set of tables.
INSERT INTO work_set (name, number, settings, next_number, boot) VALUES ($1, $2, $3, $4, '');

-- name: change_set
-- Other settings for a set of tables.
UPDATE {schema}.work_set SET settings = $2::text WHERE name = $1::text;

-- name: draw (postgres)
-- So many numbers.
SELECT nextval('{schema}.work_{1}_number') FROM generate_series(1, $1::bigint);

-- name: draw (sqlite)
-- So many numbers of a set: the one after the last of them.
UPDATE work_set SET next_number = next_number + $2 WHERE name = $1 RETURNING next_number;

-- name: hold_set (postgres)
-- Until this transaction ends no table of set {1} is emptied or removed. Before its first look, so that it sees all rows.
LOCK TABLE {schema}.work_{1}_entry, {schema}.work_{1}_order, {schema}.work_{1}_state IN ACCESS SHARE MODE;

-- name: last_number (sqlite)
-- The last number that a set has drawn.
SELECT next_number - 1 FROM work_set WHERE name = $1;

-- name: lock_catalog (postgres)
-- One process at a time declares a journal or sees to the tables of a set.
SELECT pg_advisory_xact_lock($1::bigint);

-- name: lock_catalog (sqlite)
-- The write lock of the file is held anyway.
SELECT $1;

-- name: made (postgres)
-- Each table that was made for a set, and what it is made like.
SELECT 'work_' || t.set_name || '_' || k.kind || t.slot, 'work_template_' || k.kind
FROM (
  SELECT name AS set_name, '' AS slot FROM {schema}.work_set
  UNION ALL SELECT name, '_0' FROM {schema}.work_set
  UNION ALL SELECT set_name, '_' || slot FROM {schema}.work_table
) AS t CROSS JOIN (VALUES ('entry'), ('order'), ('state')) AS k (kind);

-- name: made (sqlite)
SELECT 'work_' || s.name || '_' || k.column1, 'work_template_' || k.column1
FROM work_set AS s CROSS JOIN (VALUES ('entry'), ('order'), ('state')) AS k;

-- name: make_set (postgres)
-- The tables of a set, like the template's, each cut into the later table (slot 0) and a ring. {1} is its name, {2} the
-- first of its numbers, {3} the last.
DO $$ BEGIN
CREATE SEQUENCE {schema}.work_{1}_number AS bigint MINVALUE {2} MAXVALUE {3} START {2};
CREATE TABLE {schema}.work_{1}_entry (LIKE {schema}.work_template_entry INCLUDING ALL) PARTITION BY LIST (slot);
CREATE TABLE {schema}.work_{1}_order (LIKE {schema}.work_template_order INCLUDING ALL) PARTITION BY LIST (slot);
CREATE TABLE {schema}.work_{1}_state (LIKE {schema}.work_template_state INCLUDING ALL) PARTITION BY LIST (slot);
EXECUTE 'CREATE VIEW {schema}.work_{1}_whole AS '
  || replace(pg_get_viewdef('{schema}.work_template_whole'::regclass), 'work_template_', 'work_{1}_');
END $$;

-- name: next_number (postgres)
-- A number that is larger than all that set {1} has handed out.
SELECT last_value + 1 FROM {schema}.work_{1}_number;

-- name: set
-- A set of tables by its name.
SELECT number, settings FROM {schema}.work_set WHERE name = $1::text;

-- name: set_boot (sqlite)
-- Leases of this set are told by the clock of this boot.
UPDATE work_set SET boot = $2 WHERE name = $1;

-- name: set_numbers
-- The largest number of a set.
SELECT coalesce(max(number), 0) FROM {schema}.work_set;

-- name: sets
-- The names of all sets of tables.
SELECT name FROM {schema}.work_set ORDER BY name;

-- name: skip_numbers (postgres)
-- Set {1} goes on from number $1.
SELECT setval('{schema}.work_{1}_number', $1::bigint, false);

-- name: skip_numbers (sqlite)
-- Set {1} leaves so many numbers out.
UPDATE work_set SET next_number = next_number + $1 WHERE name = '{1}';

-- name: set_of_numbers (postgres)
-- The number of each set.
SELECT name, number FROM {schema}.work_set ORDER BY name;

-- name: template (sqlite)
-- What makes the tables of a set, like the template's: statements, in order. $1 is its name.
SELECT replace(sql, 'work_template_', 'work_' || $1::text || '_') FROM sqlite_schema
WHERE name GLOB 'work_template_*' AND sql IS NOT NULL ORDER BY rowid;
