-- Remove all events of a life.
DELETE FROM journal WHERE key = ? AND life = ?;
