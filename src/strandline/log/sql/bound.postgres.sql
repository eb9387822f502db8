-- The last offset that was trimmed and the newest, of one partition.
SELECT trimmed, newest FROM {schema}.log_partition WHERE partition = $1::integer;
