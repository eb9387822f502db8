-- Events of an entity type and partition by time. Both bounds are places in the index: what lies beyond is not touched.
SELECT key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
FROM journal
WHERE entity_type = ? AND partition = ?
    AND (timestamp, seq_nr) > (?, ?) AND (timestamp, seq_nr) <= (?, 9223372036854775807)
ORDER BY timestamp, seq_nr LIMIT ?;
