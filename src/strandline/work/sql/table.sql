-- The ring of tables of a set.

-- name: add_table
-- Open a table.
INSERT INTO {schema}.work_table (set_name, slot, state, opened_date, closed_date, first_number, last_number)
VALUES ($1::text, $2::bigint, 'current', $3::bigint, 0, $4::bigint, 0);

-- name: add_version
-- Keep the columns of a version.
INSERT INTO {schema}.work_version (journal, version, columns) VALUES ($1::bigint, $2::bigint, $3::text);

-- name: close_table
-- Close the current table.
UPDATE {schema}.work_table SET state = 'closed', closed_date = $3::bigint, last_number = $4::bigint
WHERE set_name = $1::text AND slot = $2::bigint;

-- name: drop_table (postgres)
-- Remove slot {2} of {1}.
DROP TABLE {schema}.work_{1}_entry_{2}, {schema}.work_{1}_order_{2}, {schema}.work_{1}_state_{2};

-- name: empty_table (postgres)
-- Empty slot {2} of {1} as a whole.
TRUNCATE {schema}.work_{1}_entry_{2}, {schema}.work_{1}_order_{2}, {schema}.work_{1}_state_{2};

-- name: forget_table
-- A closed table was removed.
DELETE FROM {schema}.work_table WHERE set_name = $1::text AND slot = $2::bigint;

-- name: gate (postgres)
-- Let nobody else begin anything on the tables of sets until we commit: every transaction looks at the ledger first.
LOCK TABLE {schema}.work_table IN ACCESS EXCLUSIVE MODE;

-- name: is_empty (postgres)
-- Whether nothing is in slot {2} of {1}: asked under the lock, with a snapshot of its own.
SELECT NOT EXISTS (SELECT FROM {schema}.work_{1}_entry_{2});

-- name: lock_table (postgres)
-- Keep everybody from slot {2} of {1}, or give up after 20 ms, so that nobody queues behind us for longer.
DO $$ BEGIN
SET LOCAL lock_timeout = '20ms';
LOCK TABLE {schema}.work_{1}_entry_{2}, {schema}.work_{1}_order_{2}, {schema}.work_{1}_state_{2} IN ACCESS EXCLUSIVE MODE;
END $$;

-- name: make_table (postgres)
-- A table of a set: slot {2} of {1}. Attached, not created as a part: that would wait for everybody who reads another one.
DO $$ BEGIN
CREATE TABLE {schema}.work_{1}_entry_{2} (LIKE {schema}.work_{1}_entry INCLUDING DEFAULTS);
ALTER TABLE {schema}.work_{1}_entry ATTACH PARTITION {schema}.work_{1}_entry_{2} FOR VALUES IN ({2});
CREATE TABLE {schema}.work_{1}_order_{2} (LIKE {schema}.work_{1}_order INCLUDING DEFAULTS);
ALTER TABLE {schema}.work_{1}_order ATTACH PARTITION {schema}.work_{1}_order_{2} FOR VALUES IN ({2});
CREATE TABLE {schema}.work_{1}_state_{2} (LIKE {schema}.work_{1}_state INCLUDING DEFAULTS) WITH (fillfactor = 70);
ALTER TABLE {schema}.work_{1}_state ATTACH PARTITION {schema}.work_{1}_state_{2} FOR VALUES IN ({2});
END $$;

-- name: mark_empty
-- A closed table was emptied.
UPDATE {schema}.work_table SET state = 'empty' WHERE set_name = $1::text AND slot = $2::bigint;

-- name: reopen_table
-- Use a table that was emptied again, or go on with the one that is there.
UPDATE {schema}.work_table SET state = 'current', opened_date = $3::bigint, closed_date = 0, first_number = $4::bigint
WHERE set_name = $1::text AND slot = $2::bigint;

-- name: slots (postgres)
-- The slots of a set's tables, but that of the later one.
SELECT slot FROM {schema}.work_table WHERE set_name = $1::text ORDER BY slot;

-- name: table_bytes (postgres)
-- The bytes of a table.
SELECT pg_total_relation_size('{schema}.work_{1}_entry_{2}') + pg_total_relation_size('{schema}.work_{1}_order_{2}')
  + pg_total_relation_size('{schema}.work_{1}_state_{2}');

-- name: table_bytes (sqlite)
-- What of the file is in use.
SELECT ((SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count))
  * (SELECT page_size FROM pragma_page_size);

-- name: table_entries (postgres)
-- How many entries are in a table.
SELECT count(*) FROM {schema}.work_{1}_entry_{2};

-- name: table_entries (sqlite)
-- How many entries there are.
SELECT count(*) FROM work_{1}_entry;

-- name: tables
-- The ledger of a set's tables.
SELECT slot, state, opened_date, closed_date, first_number, last_number FROM {schema}.work_table
WHERE set_name = $1::text ORDER BY slot;

-- name: versions
-- The columns of all versions of a journal.
SELECT version, columns FROM {schema}.work_version WHERE journal = $1::bigint ORDER BY version;
