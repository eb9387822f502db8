-- Records of a partition after an offset, as the fields of a Record: by their place, then those that have none yet. Of
-- one key where one is given; without values where they are not wanted.
SELECT partition, log_offset, timestamp, key, header, iif(:values, value, NULL), life, first, last FROM (
    SELECT action.* FROM place CROSS JOIN action ON action.seq = place.seq
    WHERE place.partition = :partition AND place.log_offset > :after AND place.log_offset <= :to
    AND (:key_hash IS NULL OR place.key_hash = :key_hash) AND (:key IS NULL OR action.key = :key)
    UNION ALL
    SELECT action.* FROM action
    WHERE action.seq > (SELECT seq FROM placed)
    AND action.partition = :partition AND action.log_offset > :after AND action.log_offset <= :to
    AND (:key_hash IS NULL OR action.key_hash = :key_hash) AND (:key IS NULL OR action.key = :key)
) ORDER BY log_offset LIMIT :limit;
