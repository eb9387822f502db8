-- Records of a partition between two offsets, as the fields of a Record; without values where they are not wanted. No
-- LIMIT: offsets have no holes, and where the planner knows little it would sort all that lies between bounds that are far
-- from each other.
SELECT partition, log_offset, timestamp, key, header, CASE WHEN $4::boolean THEN value END, life, first, last
FROM {schema}.log_action
WHERE partition = $1 AND log_offset > $2 AND log_offset <= $3
ORDER BY log_offset;
