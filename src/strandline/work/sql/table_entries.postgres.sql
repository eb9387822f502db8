-- How many entries are in a table.
SELECT count(*) FROM {schema}.work_{1}_entry_{2};
