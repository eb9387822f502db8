-- The state of a key, in the table of heads.
INSERT OR REPLACE INTO head (key_digest, state) VALUES (?1, ?2);
