-- A table by the name that a statement gives it, found as the server finds it: oid, schema, name, whether it is one
-- whose rows are in it alone. $1 name
SELECT found.oid, schema.nspname, found.relname,
       found.relkind IN ('r', 'p') AND NOT (found.relkind = 'r' AND found.relhassubclass)
FROM pg_catalog.pg_class AS found JOIN pg_catalog.pg_namespace AS schema ON schema.oid = found.relnamespace
WHERE found.oid = pg_catalog.to_regclass($1)::oid AND found.relkind IN ('r', 'p', 'v', 'm', 'f')
