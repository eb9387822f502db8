-- The last offset that was trimmed, the newest, and its timestamp, of each partition.
SELECT trimmed, newest, timestamp FROM {schema}.log_partition ORDER BY partition;
