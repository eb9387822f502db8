-- A head goes back to its latest action, if no other key of this hash was quicker.
UPDATE latest SET seq = :seq WHERE key_hash = :key_hash AND seq IS NULL;
