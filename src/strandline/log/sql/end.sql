-- Offset and timestamp of the last action of a partition, trimmed or not: offsets and timestamps go on from here.
SELECT place & 0x1FFFFFFFFFFFFF, timestamp FROM (
    SELECT place, timestamp FROM action
    WHERE place BETWEEN :partition << 53 AND :partition << 53 | 0x1FFFFFFFFFFFFF ORDER BY place DESC LIMIT 1
)
UNION ALL
SELECT log_offset, timestamp FROM trimmed WHERE partition = :partition
ORDER BY 1 DESC LIMIT 1;
