-- Add an event. Another one at its place is a constraint error.
INSERT INTO journal (key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
