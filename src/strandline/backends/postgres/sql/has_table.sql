-- Whether a table is there, also for a user who may not look into it.
SELECT 1 FROM pg_catalog.pg_class AS found JOIN pg_catalog.pg_namespace AS schema ON schema.oid = found.relnamespace
WHERE schema.nspname = $1 AND found.relname = $2 AND found.relkind IN ('r', 'p');
