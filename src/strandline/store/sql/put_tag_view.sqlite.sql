-- Add a row to a tag's view. The same row again changes nothing; one that says something else is a constraint error.
INSERT INTO tag_view (tag, bucket, timestamp, key, life, tag_seq_nr, previous_timestamp, previous_seq_nr, row_digest,
    seq_nr, prev_seq_nr, body, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tag, timestamp, key, seq_nr) DO UPDATE
SET row_digest = NULL
WHERE row_digest <> excluded.row_digest OR digest <> excluded.digest;
