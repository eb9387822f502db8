-- Of one partition: the last offset that was trimmed, and the newest one; -1 where there is none.
WITH gone (log_offset) AS (SELECT coalesce(max(log_offset), -1) FROM trimmed WHERE partition = :partition)
SELECT
    gone.log_offset,
    max(
        gone.log_offset,
        coalesce((SELECT max(log_offset) FROM place WHERE partition = :partition), -1),
        coalesce((
            SELECT max(log_offset) FROM action WHERE seq > (SELECT seq FROM placed) AND partition = :partition
        ), -1)
    )
FROM gone;
