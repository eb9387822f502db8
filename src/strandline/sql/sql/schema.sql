-- What the tables of every part have: steps done, and settings fixed at their creation.

-- name: columns (postgres)
-- The columns of all tables: a step that was skipped or half undone by hand shows here.
SELECT table_name::text, column_name::text, data_type::text, is_nullable = 'YES'
FROM information_schema.columns WHERE table_schema = $1;

-- name: columns (sqlite)
SELECT t.name, c.name, c.type, c."notnull", c.pk
FROM sqlite_schema AS t JOIN pragma_table_xinfo(t.name) AS c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%'
ORDER BY t.name, c.cid;

-- name: database_id (postgres)
-- What tells these tables from all others, and how isolated the transaction is that asks.
SELECT value, current_setting('transaction_isolation') FROM {schema}.{prefix}setting WHERE name = 'database_id';

-- name: database_id (sqlite)
-- What tells these tables from all others; of the file itself, not of one that is attached to it.
SELECT value FROM main.{prefix}setting WHERE name = 'database_id';

-- name: fix_setting
-- Keep what creation fixed.
INSERT INTO {schema}.{prefix}setting (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: foundation (postgres)
-- What every part has: which steps of its schema are done, what its creation fixed, and who changes it.
CREATE TABLE IF NOT EXISTS {schema}.{prefix}schema_step (
    nr bigint NOT NULL PRIMARY KEY,
    name text NOT NULL UNIQUE,
    additive boolean NOT NULL
);
CREATE TABLE IF NOT EXISTS {schema}.{prefix}setting (
    name text NOT NULL PRIMARY KEY,
    value text NOT NULL
);
CREATE TABLE IF NOT EXISTS {schema}.{prefix}lock (
    name text NOT NULL PRIMARY KEY,
    holder text NOT NULL,
    taken bigint NOT NULL
);

-- name: foundation (sqlite)
-- What every part has: which steps of its schema are done, and what its creation fixed.
CREATE TABLE IF NOT EXISTS {prefix}schema_step (
    nr INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    additive INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS {prefix}setting (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- name: record_step
-- A step of the schema is done.
INSERT INTO {schema}.{prefix}schema_step (nr, name, additive)
SELECT coalesce(max(nr), 0) + 1, $1::text, $2::boolean FROM {schema}.{prefix}schema_step;

-- name: settings
-- All that creation fixed.
SELECT name, value FROM {schema}.{prefix}setting;

-- name: steps_done
-- The steps of the schema that are done, in the order in which they were.
SELECT name, additive FROM {schema}.{prefix}schema_step ORDER BY nr;
