-- The steps of the schema that are done, in the order in which they were.
SELECT name, additive FROM {schema}.{prefix}schema_step ORDER BY nr;
