-- A row that was put back.
INSERT INTO repaired (partition, number, key, life, seq_nr, timestamp, tag, tag_seq_nr, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);
