-- All snapshots of a life, without their states.
SELECT key, life, seq_nr, timestamp, form, NULL, digest FROM {schema}.snapshot
WHERE key = $1 AND life = $2 ORDER BY seq_nr;
