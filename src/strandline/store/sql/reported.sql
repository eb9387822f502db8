-- What the pipeline last said of partitions that fail.
SELECT errors FROM {schema}.lease WHERE name = $1 AND errors IS NOT NULL;
