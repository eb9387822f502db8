-- Events of an entity type and partition by their places: timestamp, seq_nr, key; within slices. Both bounds are places in
-- the index, which has the slice too: what is of another slice is passed over without its row. Bodies above 16 KiB are
-- left out.
SELECT timestamp, seq_nr, key, life, prev_seq_nr, CASE WHEN octet_length(body) <= 16384 THEN body END, digest
FROM {schema}.journal
WHERE entity_type = $1 AND partition = $2 AND slice >= $3 AND slice <= $4
    AND (timestamp, seq_nr, key) > ($5, $6, $7) AND (timestamp, seq_nr) <= ($8, 9223372036854775807)
ORDER BY timestamp, seq_nr, key LIMIT $9;
