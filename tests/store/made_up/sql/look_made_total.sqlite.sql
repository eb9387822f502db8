-- What was counted of a key.
SELECT key, life, events, seq_nr, timestamp, digest FROM made_total WHERE key = ?1;
