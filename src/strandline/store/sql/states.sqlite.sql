-- Head and ended life of a key, in one row.
SELECT k.key, m.seq_nr, m.delete_to, m.life, m.partition, m.log_offset, m.created, m.updated, m.expire_after_us, m.expire_at,
    m.segment_size, m.archive_to, m.prev, m.removed_to, m.remembered, m.digest,
    e.life, e.partition, e.log_offset, e.digest
FROM (SELECT ?1 AS entity_type, ?2 AS slice, ?3 AS key, ?4 AS key_digest) AS k
LEFT JOIN metajournal AS m ON m.entity_type = k.entity_type AND m.slice = k.slice AND m.key = k.key
LEFT JOIN ended AS e ON e.key_digest = k.key_digest;
