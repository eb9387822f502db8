-- What is in the quarantine, after a place, up to a partition.
SELECT partition, log_offset, timestamp, key, reason, header, value, life, first, last, digest
FROM {schema}.quarantine
WHERE (partition, log_offset) > ($1, $2) AND partition <= $3
ORDER BY partition, log_offset LIMIT $4;
