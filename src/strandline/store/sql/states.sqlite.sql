-- Head and ended life of a key, in one row, behind the place of a pointer.
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    k.entity_type, k.slice, k.key, m.seq_nr, m.delete_to, m.life, m.partition, m.log_offset, m.created, m.updated,
    m.expire_after_us, m.expire_at, m.segment_size, m.prev, m.removed_to, m.remembered, m.digest, m.archive_life, m.archive_to,
    e.slice, e.key_digest, e.life, e.partition, e.log_offset, e.digest
FROM (SELECT ?1 AS entity_type, ?2 AS slice, ?3 AS key, ?4 AS ended_slice, ?5 AS key_digest) AS k
LEFT JOIN metajournal AS m ON m.entity_type = k.entity_type AND m.slice = k.slice AND m.key = k.key
LEFT JOIN ended AS e ON e.slice = k.ended_slice AND e.key_digest = k.key_digest;
