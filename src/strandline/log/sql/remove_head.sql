-- A purge leaves no head.
DELETE FROM head WHERE key = ?;
