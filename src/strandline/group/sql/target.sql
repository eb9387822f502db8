-- The owners of a target, and their fences.

-- name: add_owner
-- $1 owner, $2 identity, $3 history_id, $4 stream
INSERT INTO {schema}.strandline_target (owner, identity, history_id, stream, fence, version)
VALUES ($1, $2, $3, $4, 0, 1)

-- name: fence (postgres)
-- Nobody raises it until this transaction has ended. $1 owner
SELECT fence FROM {schema}.strandline_target WHERE owner = $1 FOR SHARE

-- name: fence (sqlite)
-- $1 owner
SELECT fence FROM {schema}.strandline_target WHERE owner = $1

-- name: gate (postgres)
-- The fence, which nobody raises until this transaction has ended, and the barrier rows of a step.
-- $1 owner, $2 group, $3 life, $4 definition, $5 step
SELECT t.fence, b.op, b.fence, b.void, b.outcome
FROM {schema}.strandline_target AS t
LEFT JOIN {schema}.strandline_barrier AS b
ON b.group_id = $2 AND b.life = $3 AND b.step = $5 AND b.definition = $4 AND b.owner = t.owner
WHERE t.owner = $1 FOR SHARE OF t

-- name: gate (sqlite)
-- The fence, and the barrier rows of a step. $1 owner, $2 group, $3 life, $4 definition, $5 step
SELECT t.fence, b.op, b.fence, b.void, b.outcome
FROM {schema}.strandline_target AS t
LEFT JOIN {schema}.strandline_barrier AS b
ON b.group_id = $2 AND b.life = $3 AND b.step = $5 AND b.definition = $4 AND b.owner = t.owner
WHERE t.owner = $1

-- name: has_tables
-- How many of our tables are there, in PostgreSQL. $1 schema
SELECT count(*) FROM pg_catalog.pg_tables
WHERE schemaname = $1 AND tablename IN ('strandline_target', 'strandline_barrier')

-- name: make_schema
-- Where our tables are in PostgreSQL.
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: make_target
-- Who uses this database: a row for each stream of each history. `owner` names the row, whoever it belongs to later:
-- barrier rows hang on it.
CREATE TABLE IF NOT EXISTS {schema}.strandline_target (
    owner text NOT NULL PRIMARY KEY,
    identity text NOT NULL,
    history_id text NOT NULL,
    stream text NOT NULL,
    fence bigint NOT NULL,
    version integer NOT NULL,
    UNIQUE (history_id, stream)
)

-- name: owners
-- All who use this database.
SELECT identity, history_id, stream, fence, owner, version FROM {schema}.strandline_target ORDER BY history_id, stream

-- name: raise_fence
-- Waits for the steps under way, which read the row. $1 owner, $2 fence
UPDATE {schema}.strandline_target SET fence = $2 WHERE owner = $1 AND fence <= $2
