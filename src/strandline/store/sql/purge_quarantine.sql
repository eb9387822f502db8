-- Remove the damaged bytes of a life.
DELETE FROM quarantine WHERE key = ? AND life = ? AND life IS NOT NULL;
