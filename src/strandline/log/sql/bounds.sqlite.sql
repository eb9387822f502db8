-- For each partition: the last offset that was trimmed, the newest one, and its timestamp; -1 and 0 where there is none.
WITH RECURSIVE numbered (partition) AS (
    VALUES (0) UNION ALL SELECT partition + 1 FROM numbered WHERE partition + 1 < :partitions
), found (partition, log_offset, timestamp) AS (
    SELECT partition, log_offset, timestamp FROM action WHERE seq > (SELECT seq FROM placed)
    UNION ALL
    SELECT numbered.partition, place.log_offset, place.timestamp FROM numbered JOIN place
    ON place.partition = numbered.partition AND place.log_offset = (
        SELECT max(log_offset) FROM place AS other WHERE other.partition = numbered.partition
    )
    UNION ALL
    SELECT partition, log_offset, timestamp FROM trimmed
    UNION ALL
    SELECT partition, -1, 0 FROM numbered
)
SELECT
    coalesce((SELECT trimmed.log_offset FROM trimmed WHERE trimmed.partition = found.partition), -1),
    max(found.log_offset),
    found.timestamp
FROM found GROUP BY found.partition ORDER BY found.partition;
