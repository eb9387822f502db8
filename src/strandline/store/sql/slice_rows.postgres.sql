-- Events of an entity type and partition by their places: timestamp, seq_nr, key; within slices. Both bounds are places in
-- the index, which has the slice too: what is of another slice is passed over without its row. Nothing but the slice is
-- said to be equal or between: in a table without statistics PostgreSQL takes that for few rows, and sorts all of them
-- for every page. Bodies above 16 KiB are left out.
SELECT timestamp, seq_nr, key, life, prev_seq_nr, CASE WHEN octet_length(body) <= 16384 THEN body END, digest
FROM {schema}.journal
WHERE (entity_type, partition, timestamp, seq_nr, key) > ($1::text, $2::integer, $5::bigint, $6::bigint, $7::text)
    AND (entity_type, partition, timestamp) <= ($1::text, $2::integer, $8::bigint)
    AND slice >= $3::integer AND slice <= $4::integer
ORDER BY entity_type, partition, timestamp, seq_nr, key LIMIT $9::bigint;
