-- Keep the number of a life that ended. It never goes back.
INSERT INTO {schema}.ended AS stands (slice, key_digest, life, partition, log_offset, digest)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (slice, key_digest) DO UPDATE
SET life = excluded.life, partition = excluded.partition, log_offset = excluded.log_offset, digest = excluded.digest
WHERE excluded.life > stands.life;
