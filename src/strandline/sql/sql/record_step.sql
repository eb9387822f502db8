-- A step of the schema is done.
INSERT INTO {schema}.{prefix}schema_step (nr, name, additive)
SELECT coalesce(max(nr), 0) + 1, $1::text, $2::boolean FROM {schema}.{prefix}schema_step;
