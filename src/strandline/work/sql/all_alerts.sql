-- How many dead letters nobody has acknowledged, of all journals.
SELECT count(*) FROM {schema}.work_dead WHERE NOT acknowledged;
