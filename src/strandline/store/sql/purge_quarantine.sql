-- Remove the damaged bytes of a life.
DELETE FROM {schema}.quarantine WHERE key = $1 AND life = $2 AND life IS NOT NULL;
