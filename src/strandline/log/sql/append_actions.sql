-- Record actions.
INSERT OR FAIL INTO action (
    seq, partition, log_offset, timestamp, key_hash, life, first, last, key, header, value
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
