-- Rows of a key and life under a tag, by their numbers.
SELECT tag, bucket, timestamp, key, life, tag_seq_nr, previous_timestamp, previous_seq_nr, row_digest, seq_nr,
    prev_seq_nr, body, digest
FROM {schema}.tag_view
WHERE key = $1 AND life = $2::bigint AND tag = $3 AND tag_seq_nr > $4::bigint AND tag_seq_nr <= $5::bigint
ORDER BY tag_seq_nr LIMIT $6;
