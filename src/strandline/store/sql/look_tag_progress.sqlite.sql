-- How far a key is in the views of its tags.
SELECT key, life, tag, first_seq_nr, seq_nr, tag_seq_nr, timestamp, digest FROM tag_progress WHERE key = ?1;
