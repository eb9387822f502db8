-- Keep the number of a life that ended. It never goes back.
INSERT INTO ended (key_digest, life, partition, log_offset, digest) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key_digest) DO UPDATE
SET life = excluded.life, partition = excluded.partition, log_offset = excluded.log_offset, digest = excluded.digest
WHERE excluded.life > ended.life;
