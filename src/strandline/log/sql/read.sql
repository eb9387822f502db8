-- Records of a run of places, as the fields of a Record; of one key where one is given, without values where not wanted.
SELECT
    place >> 53, place & 0x1FFFFFFFFFFFFF, timestamp, key, header, iif(:values, value, NULL), life, first, last
FROM action
WHERE place > :after AND place <= :to AND (:key IS NULL OR key = :key)
ORDER BY place LIMIT :limit;
