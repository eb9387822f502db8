-- Every event that the store holds, whatever its life.
SELECT key, seq_nr, life, body FROM journal
