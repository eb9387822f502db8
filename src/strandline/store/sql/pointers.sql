-- How far all partitions are.
SELECT partition, log_offset, timestamp, moved, fence, revision, digest FROM pointer ORDER BY partition;
