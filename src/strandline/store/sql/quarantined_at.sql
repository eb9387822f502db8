-- One record of the quarantine.
SELECT partition, log_offset, timestamp, key, reason, header, value, life, first, last, digest
FROM {schema}.quarantine WHERE partition = $1 AND log_offset = $2;
