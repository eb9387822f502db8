-- What is in the quarantine.
SELECT partition, log_offset, timestamp, key, reason, header, value, life, first, last, digest
FROM {schema}.quarantine ORDER BY partition, log_offset LIMIT $1;
