-- Snapshots of a life, the newest first: from a number down to another.
SELECT key, life, seq_nr, timestamp, form, state, digest FROM {schema}.snapshot
WHERE key = $1 AND life = $2 AND seq_nr <= $3 AND seq_nr >= $4
ORDER BY seq_nr DESC LIMIT $5;
