-- What the pipeline last said of partitions that fail.
SELECT errors FROM {schema}.lease WHERE name = 'pipeline' AND errors IS NOT NULL;
