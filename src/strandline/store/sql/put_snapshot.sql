-- Save a snapshot, or replace the one at its seq_nr.
INSERT INTO {schema}.snapshot (key, life, seq_nr, timestamp, form, state, digest) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (key, life, seq_nr) DO UPDATE
SET timestamp = excluded.timestamp, form = excluded.form, state = excluded.state, digest = excluded.digest;
