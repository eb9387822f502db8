-- How far a key and life is in the views of its tags.
SELECT key, life, tag, first_seq_nr, seq_nr, tag_seq_nr, timestamp, digest
FROM {schema}.tag_progress
WHERE key = $1 AND life = $2::bigint AND tag > $3
ORDER BY tag LIMIT $4;
