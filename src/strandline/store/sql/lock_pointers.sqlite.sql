-- How far all partitions are; they stay so until the end of the transaction, which holds the lock of the file.
SELECT partition, log_offset, timestamp, moved, fence, revision, digest FROM pointer ORDER BY partition;
