-- The largest number of a set.
SELECT coalesce(max(number), 0) FROM {schema}.work_set;
