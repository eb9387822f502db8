-- A key has no head, or has it elsewhere.
DELETE FROM head WHERE key = ?;
