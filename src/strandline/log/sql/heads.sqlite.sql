-- The heads of these keys (a JSON array) that are in the table of heads.
SELECT
    key, seq_nr, delete_to, life, partition, log_offset, created, updated, expire_after_us, expire_at, segment_size,
    archive_to, prev, removed_to, remembered
FROM head WHERE key IN (SELECT value FROM json_each(?));
