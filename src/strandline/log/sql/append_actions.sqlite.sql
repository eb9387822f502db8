-- Record actions.
INSERT OR FAIL INTO action (
    seq, partition, log_offset, timestamp, key_hash, life, first, last, state, key, header, value
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
