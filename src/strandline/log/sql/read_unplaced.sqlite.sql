-- The same of the few that have no place yet. Within a partition they stand in the order of their offsets.
SELECT
    partition, log_offset, timestamp, key, header, iif(:values, value, NULL), life, first, last
FROM action
WHERE seq > (SELECT seq FROM placed)
AND partition = :partition AND log_offset > :after AND log_offset <= :to
AND (:key_hash IS NULL OR key_hash = :key_hash) AND (:key IS NULL OR key = :key)
ORDER BY seq LIMIT :limit;
