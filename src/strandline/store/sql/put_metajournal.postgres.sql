-- Write heads. What archiving moves stays as it is.
INSERT INTO {schema}.metajournal (
    entity_type, slice, key, seq_nr, delete_to, life, partition, log_offset, created, updated, expire_after_us, expire_at,
    segment_size, prev, removed_to, remembered, digest
)
SELECT * FROM unnest(
    $1::text[], $2::integer[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::integer[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
    $16::text[], $17::bigint[]
)
ON CONFLICT (entity_type, slice, key) DO UPDATE
SET seq_nr = excluded.seq_nr, delete_to = excluded.delete_to, life = excluded.life, partition = excluded.partition,
    log_offset = excluded.log_offset, created = excluded.created, updated = excluded.updated,
    expire_after_us = excluded.expire_after_us, expire_at = excluded.expire_at, segment_size = excluded.segment_size,
    prev = excluded.prev, removed_to = excluded.removed_to, remembered = excluded.remembered, digest = excluded.digest;
