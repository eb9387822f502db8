-- Rows of a tag by their places: timestamp, key, seq_nr.
SELECT tag, bucket, timestamp, key, life, tag_seq_nr, previous_timestamp, previous_seq_nr, row_digest, seq_nr,
    prev_seq_nr, body, digest
FROM {schema}.tag_view
WHERE tag = $1 AND (timestamp, key, seq_nr) > ($2::bigint, $3::text, $4::bigint) AND timestamp <= $5::bigint
ORDER BY timestamp, key, seq_nr LIMIT $6;
