-- The same without bodies: for who reads again what was mostly read before.
SELECT timestamp, seq_nr, key, life, prev_seq_nr
FROM {schema}.journal
WHERE (entity_type, partition, timestamp, seq_nr, key) > ($1::text, $2::integer, $5::bigint, $6::bigint, $7::text)
    AND (entity_type, partition, timestamp) <= ($1::text, $2::integer, $8::bigint)
    AND slice >= $3::integer AND slice <= $4::integer
ORDER BY entity_type, partition, timestamp, seq_nr, key LIMIT $9::bigint;
