-- What was counted of keys.
SELECT key, life, events, seq_nr, timestamp, digest FROM {schema}.made_total WHERE key = ANY ($1::text[]);
