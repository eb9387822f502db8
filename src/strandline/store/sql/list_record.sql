-- Put a record into the quarantine; the same one again changes nothing.
INSERT INTO {schema}.quarantine (
    partition, log_offset, timestamp, key, reason, header, value, life, first, last, digest
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (partition, log_offset) DO NOTHING;
