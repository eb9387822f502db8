-- Copies of tables, out of a snapshot and into tables that are new.

-- name: copy_in
-- Rows into table {2}, whose columns {1} are.
COPY {schema}.{2} ({1}) FROM STDIN (FORMAT binary);

-- name: copy_out
-- All rows of table {2}, columns {1}.
COPY (SELECT {1} FROM {schema}.{2}) TO STDOUT (FORMAT binary);

-- name: export_snapshot
-- What this transaction sees, for another one; and the server's clock (µs).
SELECT pg_export_snapshot(), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: import_snapshot
-- See what another transaction sees, whose snapshot {1} is.
SET TRANSACTION SNAPSHOT '{1}';

-- name: no_timeouts
-- Let this transaction take as long as it takes.
SELECT set_config('idle_in_transaction_session_timeout', '0', true), set_config('statement_timeout', '0', true);

-- name: table_bytes
-- About how many bytes the tables of a schema have: of each its name and size.
SELECT relation.relname::text, sum(pg_table_size(coalesce(tree.relid, relation.oid)))::bigint
FROM pg_catalog.pg_class AS relation
JOIN pg_catalog.pg_namespace AS schema ON schema.oid = relation.relnamespace
LEFT JOIN LATERAL pg_partition_tree(relation.oid) AS tree ON relation.relkind = 'p'
WHERE schema.nspname = $1 AND relation.relkind IN ('r', 'p')
GROUP BY relation.relname;
