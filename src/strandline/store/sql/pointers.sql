-- How far all partitions are.
SELECT partition, log_offset, timestamp, moved, fence, revision, digest FROM {schema}.pointer ORDER BY partition;
