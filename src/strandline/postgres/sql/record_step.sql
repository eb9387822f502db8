-- A step of the schema is done.
INSERT INTO {schema}.{prefix}schema_step (nr, name)
SELECT coalesce(max(nr), 0) + 1, $1::text FROM {schema}.{prefix}schema_step;
