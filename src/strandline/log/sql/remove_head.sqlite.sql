-- A key has its head elsewhere.
DELETE FROM head WHERE key_digest = ?1;
