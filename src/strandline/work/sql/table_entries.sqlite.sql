-- How many entries there are.
SELECT count(*) FROM work_{1}_entry;
