-- A purge takes the bytes of its life along.
CREATE INDEX IF NOT EXISTS quarantine_by_life ON {schema}.quarantine (key, life) WHERE life IS NOT NULL;
