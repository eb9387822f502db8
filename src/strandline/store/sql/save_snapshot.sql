-- Save a snapshot, or replace the one at its seq_nr.
INSERT INTO snapshot (key, life, seq_nr, timestamp, form, state, digest) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key, life, seq_nr) DO UPDATE
SET timestamp = excluded.timestamp, form = excluded.form, state = excluded.state, digest = excluded.digest;
