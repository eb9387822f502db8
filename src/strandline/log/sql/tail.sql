-- The newest accepted appends of all partitions.
SELECT partition, log_offset, key, life FROM action WHERE life IS NOT NULL ORDER BY seq DESC LIMIT ?;
