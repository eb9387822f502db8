-- Records of a partition after an offset, as the fields of a Record; without values where they are not wanted.
SELECT partition, log_offset, timestamp, key, header, CASE WHEN $5::boolean THEN value END, life, first, last
FROM {schema}.log_action
WHERE partition = $1 AND log_offset > $2 AND log_offset <= $3
ORDER BY log_offset LIMIT $4;
