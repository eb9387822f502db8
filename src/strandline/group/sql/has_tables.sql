-- How many of our tables are there, in PostgreSQL. $1 schema
SELECT count(*) FROM pg_catalog.pg_tables
WHERE schemaname = $1 AND tablename IN ('strandline_target', 'strandline_barrier')
