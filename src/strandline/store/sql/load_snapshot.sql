-- The newest snapshot between two seq_nrs.
SELECT key, life, seq_nr, timestamp, form, state, digest FROM snapshot
WHERE key = ? AND life = ? AND seq_nr >= ? AND seq_nr <= ?
ORDER BY seq_nr DESC LIMIT 1;
