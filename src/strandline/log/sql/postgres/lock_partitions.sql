-- Hold partitions until the end of the transaction, in ascending order, so that no two wait for each other.
SELECT partition, newest, timestamp FROM {schema}.log_partition
WHERE partition = ANY($1::integer[]) ORDER BY partition FOR UPDATE;
