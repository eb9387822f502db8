-- One record of the quarantine.
SELECT partition, log_offset, timestamp, key, reason, header, value, life, first, last, digest
FROM quarantine WHERE partition = ? AND log_offset = ?;
