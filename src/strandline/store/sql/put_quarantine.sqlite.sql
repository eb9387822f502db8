-- Put a record into the quarantine; the same one again changes nothing.
INSERT INTO quarantine (partition, log_offset, timestamp, key, reason, header, value, life, first, last, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (partition, log_offset) DO NOTHING;
