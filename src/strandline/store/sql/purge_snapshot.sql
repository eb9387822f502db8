-- Remove all snapshots of a life.
DELETE FROM {schema}.snapshot WHERE key = $1 AND life = $2;
