-- The heads of these hashes (a JSON array) are not with their latest action any more.
UPDATE latest SET seq = NULL WHERE key_hash IN (SELECT value FROM json_each(?));
