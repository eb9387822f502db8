-- What was counted of a life.
INSERT INTO made_total (key, life, events, seq_nr, timestamp, digest) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (key, life) DO UPDATE
SET events = excluded.events, seq_nr = excluded.seq_nr, timestamp = excluded.timestamp, digest = excluded.digest;
