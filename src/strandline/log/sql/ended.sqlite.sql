-- The ended lives of these keys (a JSON array of digests in hexadecimal).
SELECT key_digest, life, partition, log_offset FROM ended
WHERE key_digest IN (SELECT unhex(value) FROM json_each(?));
