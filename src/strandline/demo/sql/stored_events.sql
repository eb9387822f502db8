-- Every event that the store holds, whatever its life, key by key.
SELECT key, seq_nr, life, body FROM journal ORDER BY key, life, seq_nr
