-- The trace of an ended life.
INSERT OR REPLACE INTO ended (key_digest, life, partition, log_offset) VALUES (?, ?, ?, ?);
