-- How far a partition is; it stays so until the end of the transaction.
SELECT partition, log_offset, timestamp, moved, fence, revision, digest FROM {schema}.pointer
WHERE partition = $1 FOR UPDATE;
