-- Write a head. What archiving moves stays as it is.
INSERT INTO metajournal (
    entity_type, slice, key, seq_nr, delete_to, life, partition, log_offset, created, updated, expire_after_us, expire_at,
    segment_size, prev, removed_to, remembered, digest
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (entity_type, slice, key) DO UPDATE
SET seq_nr = excluded.seq_nr, delete_to = excluded.delete_to, life = excluded.life, partition = excluded.partition,
    log_offset = excluded.log_offset, created = excluded.created, updated = excluded.updated,
    expire_after_us = excluded.expire_after_us, expire_at = excluded.expire_at, segment_size = excluded.segment_size,
    prev = excluded.prev, removed_to = excluded.removed_to, remembered = excluded.remembered, digest = excluded.digest;
