-- The last offset that was trimmed and the newest, of each partition.
SELECT trimmed, newest FROM {schema}.log_partition ORDER BY partition;
