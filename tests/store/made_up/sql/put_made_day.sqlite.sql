-- An event by its day; the same again changes nothing.
INSERT INTO made_day (day, timestamp, key, seq_nr, life, note, digest) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (day, timestamp, key, seq_nr) DO NOTHING;
