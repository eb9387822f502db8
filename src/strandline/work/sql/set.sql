-- A set of tables by its name.
SELECT number, settings FROM {schema}.work_set WHERE name = $1::text;
