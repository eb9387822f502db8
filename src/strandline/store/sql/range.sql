-- Events of an entity type and partition by time, within slices. Both bounds are places in the index, which has the
-- slice too: what lies beyond is not touched, and what is of another slice is passed over without its row.
SELECT key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
FROM {schema}.journal
WHERE entity_type = $1 AND partition = $2 AND slice >= $3 AND slice <= $4
    AND (timestamp, seq_nr) > ($5, $6) AND (timestamp, seq_nr) <= ($7, 9223372036854775807)
ORDER BY timestamp, seq_nr LIMIT $8;
