-- The schema of a part: whether it is there, making it, and the lock on changing it.

-- name: create_schema
-- Make the schema.
CREATE SCHEMA IF NOT EXISTS {schema};

-- name: free_lock
-- Nobody changes the schema any more.
DELETE FROM {schema}.{prefix}lock WHERE name = 'schema' AND holder = $1;

-- name: has_schema
-- Whether a schema is there: making one that is there needs rights that using it does not.
SELECT 1 FROM information_schema.schemata WHERE schema_name = $1;

-- name: has_table
-- Whether a table is there, also for a user who may not look into it.
SELECT 1 FROM pg_catalog.pg_class AS found JOIN pg_catalog.pg_namespace AS schema ON schema.oid = found.relnamespace
WHERE schema.nspname = $1 AND found.relname = $2 AND found.relkind IN ('r', 'p');

-- name: may_create
-- Whether this user may make tables in a schema, or the schema itself if it is not there.
SELECT CASE WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1)
    THEN has_schema_privilege($1::text, 'CREATE')
    ELSE has_database_privilege(current_database(), 'CREATE')
END;

-- name: take_lock
-- Become the one who changes the schema, if nobody is, or if who was has been at it for too long (µs).
INSERT INTO {schema}.{prefix}lock AS held (name, holder, taken)
VALUES ('schema', $1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, taken = excluded.taken
WHERE held.taken < excluded.taken - $2::bigint
RETURNING holder;
