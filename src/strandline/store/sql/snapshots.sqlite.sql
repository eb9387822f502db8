-- All snapshots of a life, without their states.
SELECT key, life, seq_nr, timestamp, form, NULL, digest FROM snapshot WHERE key = ? AND life = ? ORDER BY seq_nr;
