-- How many entries are left, counted up to a limit.
SELECT count(*) FROM (SELECT 1 FROM work_{1}_entry WHERE $1 > 0 LIMIT $2);
