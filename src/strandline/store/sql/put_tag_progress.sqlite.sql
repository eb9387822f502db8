-- How far a key is in the view of a tag.
INSERT INTO tag_progress (key, life, tag, first_seq_nr, seq_nr, tag_seq_nr, timestamp, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key, life, tag) DO UPDATE
SET first_seq_nr = excluded.first_seq_nr, seq_nr = excluded.seq_nr, tag_seq_nr = excluded.tag_seq_nr,
    timestamp = excluded.timestamp, digest = excluded.digest;
