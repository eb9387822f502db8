-- The same without bodies: for who reads again what was mostly read before.
SELECT timestamp, seq_nr, key, life, prev_seq_nr
FROM {schema}.journal
WHERE entity_type = $1 AND partition = $2 AND slice >= $3 AND slice <= $4
    AND (timestamp, seq_nr, key) > ($5, $6, $7) AND (timestamp, seq_nr) <= ($8, 9223372036854775807)
ORDER BY timestamp, seq_nr, key LIMIT $9;
