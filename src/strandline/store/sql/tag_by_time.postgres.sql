-- Rows of a tag by their places: timestamp, key, seq_nr; without bodies that are larger than $7. Both bounds are places
-- in the index, and nothing is said to be equal: in a table without statistics PostgreSQL takes that for few rows, and
-- sorts all of them for every page.
SELECT tag, bucket, timestamp, key, life, tag_seq_nr, previous_timestamp, previous_seq_nr, row_digest, seq_nr,
    prev_seq_nr, CASE WHEN octet_length(body) <= $7::bigint THEN body END, digest
FROM {schema}.tag_view
WHERE (tag, timestamp, key, seq_nr) > ($1::text, $2::bigint, $3::text, $4::bigint)
    AND (tag, timestamp) <= ($1::text, $5::bigint)
ORDER BY tag, timestamp, key, seq_nr LIMIT $6::bigint;
