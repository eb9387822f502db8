-- How far a partition is; it stays so until the end of the transaction, which holds the lock of the file.
SELECT partition, log_offset, timestamp, moved, fence, revision, digest FROM pointer WHERE partition = ?;
