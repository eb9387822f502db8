-- A purge takes the bytes of its life along.
CREATE INDEX quarantine_by_life ON quarantine (key, life) WHERE life IS NOT NULL;
