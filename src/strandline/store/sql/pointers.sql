-- How far all partitions are, and the newest number of rows that were put back in each.
SELECT p.partition, p.log_offset, p.timestamp, p.moved, p.fence, p.revision, p.digest,
    (SELECT max(r.number) FROM {schema}.repaired AS r WHERE r.partition = p.partition)
FROM {schema}.pointer AS p
ORDER BY p.partition;
