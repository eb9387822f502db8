-- Rows of a partition that were put back, by their numbers.
SELECT partition, number, key, life, seq_nr, timestamp, tag, tag_seq_nr, digest
FROM {schema}.repaired
WHERE partition = $1 AND number > $2::bigint AND number <= $3::bigint
ORDER BY number LIMIT $4;
