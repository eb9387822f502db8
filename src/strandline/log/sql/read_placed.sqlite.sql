-- Records of a partition after an offset, as the fields of a Record, found by their places. Of one key where one is
-- given; without values where they are not wanted.
SELECT
    action.partition, action.log_offset, action.timestamp, action.key, action.header,
    iif(:values, action.value, NULL), action.life, action.first, action.last
FROM place CROSS JOIN action ON action.seq = place.seq
WHERE place.partition = :partition AND place.log_offset > :after AND place.log_offset <= :to
-- The hash first, and on its own: a record of another key is then not even looked at.
AND (:key_hash IS NULL OR place.key_hash = :key_hash) AND (:key IS NULL OR action.key = :key)
ORDER BY place.log_offset LIMIT :limit;
