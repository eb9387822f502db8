-- Forget what was put back of a life.
DELETE FROM {schema}.repaired WHERE key = $1 AND life = $2;
