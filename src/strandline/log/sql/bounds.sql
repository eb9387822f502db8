-- For each partition: the last offset that was trimmed, and the newest one; -1 where there is none.
WITH RECURSIVE numbered (partition) AS (
    VALUES (0) UNION ALL SELECT partition + 1 FROM numbered WHERE partition + 1 < :partitions
)
SELECT
    coalesce(trimmed.log_offset, -1),
    max(coalesce(trimmed.log_offset, -1), coalesce((
        SELECT place & 0x1FFFFFFFFFFFFF FROM action
        WHERE place BETWEEN numbered.partition << 53 AND numbered.partition << 53 | 0x1FFFFFFFFFFFFF
        ORDER BY place DESC LIMIT 1
    ), -1))
FROM numbered LEFT JOIN trimmed ON trimmed.partition = numbered.partition
ORDER BY numbered.partition;
