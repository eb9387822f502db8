-- Remove the snapshots of a life up to a seq_nr.
DELETE FROM {schema}.snapshot WHERE key = $1 AND life = $2 AND seq_nr <= $3;
