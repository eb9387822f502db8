-- Where the heads of keys are now that were with their latest action before.
INSERT OR REPLACE INTO latest (key_hash, seq) VALUES (?, ?);
