-- The names of all sets of tables.
SELECT name FROM {schema}.work_set ORDER BY name;
