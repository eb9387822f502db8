-- Events of an entity type and partition by time. Both bounds are places in the index: what lies beyond is not touched.
SELECT key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
FROM {schema}.journal
WHERE entity_type = $1 AND partition = $2
    AND (timestamp, seq_nr) > ($3, $4) AND (timestamp, seq_nr) <= ($5, 9223372036854775807)
ORDER BY timestamp, seq_nr LIMIT $6;
