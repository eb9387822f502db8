-- How far a partition is.
SELECT partition, log_offset, timestamp, moved, fence, revision, digest FROM pointer WHERE partition = ?;
