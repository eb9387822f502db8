-- A partition's pointer, and head and ended life of a key, of one moment.
SELECT p.partition, p.log_offset, p.timestamp, p.moved, p.fence, p.revision, p.digest,
    k.entity_type, k.slice, k.key, m.seq_nr, m.delete_to, m.life, m.partition, m.log_offset, m.created, m.updated,
    m.expire_after_us, m.expire_at, m.segment_size, m.prev, m.removed_to, m.remembered, m.digest, m.archive_life, m.archive_to,
    e.slice, e.key_digest, e.life, e.partition, e.log_offset, e.digest
FROM (
    SELECT $1::integer AS partition, $2::text AS entity_type, $3::integer AS slice, $4::text AS key,
        $5::integer AS ended_slice, $6::bytea AS key_digest
) AS k
LEFT JOIN {schema}.pointer AS p ON p.partition = k.partition
LEFT JOIN {schema}.metajournal AS m ON m.entity_type = k.entity_type AND m.slice = k.slice AND m.key = k.key
LEFT JOIN {schema}.ended AS e ON e.slice = k.ended_slice AND e.key_digest = k.key_digest;
