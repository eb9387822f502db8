-- The head of a key, in the table of heads.
INSERT OR REPLACE INTO head (
    key, seq_nr, delete_to, life, partition, log_offset, created, updated, expire_after_us, expire_at, segment_size,
    archive_to, prev, removed_to, remembered
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
