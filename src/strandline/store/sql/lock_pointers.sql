-- How far all partitions are; they stay so until the end of the transaction.
SELECT partition, log_offset, timestamp, moved, fence, revision, digest FROM {schema}.pointer
ORDER BY partition FOR UPDATE;
