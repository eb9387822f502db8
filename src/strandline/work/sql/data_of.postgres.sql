-- The data of entries.
SELECT e.id, e.data FROM unnest($1::bigint[]) AS given (id) JOIN {schema}.work_{1}_entry e ON e.id = given.id;
