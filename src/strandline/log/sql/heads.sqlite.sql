-- The states of these keys (a JSON array of digests in hexadecimal) that are in the table of heads.
SELECT key_digest, state FROM head WHERE key_digest IN (SELECT unhex(value) FROM json_each(?1));
