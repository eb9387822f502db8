-- Write an event whatever stands at its place: for corrections.
INSERT OR REPLACE INTO journal (key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
