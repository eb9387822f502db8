-- Hold partitions until the end of the transaction, in ascending order, so that no two wait for each other; and who stops
-- in the middle of it keeps them no longer than this (ms).
SELECT partition, newest, timestamp, set_config('idle_in_transaction_session_timeout', ($2::text[])[1], true)
FROM {schema}.log_partition
WHERE partition = ANY($1::integer[]) ORDER BY partition FOR UPDATE;
