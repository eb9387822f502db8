-- Remove all events of a life.
DELETE FROM {schema}.journal WHERE key = $1 AND life = $2;
