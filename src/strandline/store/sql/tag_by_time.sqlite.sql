-- Rows of a tag by their places: timestamp, key, seq_nr; without bodies that are larger than $7.
SELECT tag, bucket, timestamp, key, life, tag_seq_nr, previous_timestamp, previous_seq_nr, row_digest, seq_nr,
    prev_seq_nr, CASE WHEN length(body) <= $7::bigint THEN body END, digest
FROM {schema}.tag_view
WHERE tag = $1::text AND (timestamp, key, seq_nr) > ($2::bigint, $3::text, $4::bigint) AND timestamp <= $5::bigint
ORDER BY timestamp, key, seq_nr LIMIT $6::bigint;
