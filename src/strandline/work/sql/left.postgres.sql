-- How many entries are left in a table, counted up to a limit.
SELECT count(*) FROM (SELECT FROM {schema}.work_{1}_entry WHERE slot = $1::bigint LIMIT $2::bigint) AS l;
