-- A new log: nothing in any partition.
INSERT INTO {schema}.log_partition (partition, newest, timestamp, trimmed)
SELECT number, -1, 0, -1 FROM generate_series(0, $1::integer - 1) AS number
ON CONFLICT (partition) DO NOTHING;
