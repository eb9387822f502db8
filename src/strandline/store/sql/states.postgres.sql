-- A partition's pointer, and heads and ended lives of those of some keys that have one, of one moment.
SELECT p.partition, p.log_offset, p.timestamp, p.moved, p.fence, p.revision, p.digest, found.*
FROM (SELECT $1::integer AS partition) AS asked
LEFT JOIN {schema}.pointer AS p ON p.partition = asked.partition
LEFT JOIN (
    SELECT k.entity_type, k.slice, k.key, m.seq_nr, m.delete_to, m.life, m.partition AS head_partition,
        m.log_offset AS head_offset, m.created, m.updated, m.expire_after_us, m.expire_at, m.segment_size, m.prev,
        m.removed_to, m.remembered, m.digest AS head_digest, m.archive_life, m.archive_to, e.slice AS ended_slice,
        e.key_digest, e.life AS ended_life, e.partition AS ended_partition, e.log_offset AS ended_offset,
        e.digest AS ended_digest
    FROM unnest($2::text[], $3::integer[], $4::text[], $5::integer[], $6::bytea[])
        AS k (entity_type, slice, key, ended_slice, key_digest)
    LEFT JOIN {schema}.metajournal AS m ON m.entity_type = k.entity_type AND m.slice = k.slice AND m.key = k.key
    LEFT JOIN {schema}.ended AS e ON e.slice = k.ended_slice AND e.key_digest = k.key_digest
    WHERE m.key IS NOT NULL OR e.key_digest IS NOT NULL
) AS found ON true;
