-- Remove all snapshots of a life.
DELETE FROM snapshot WHERE key = ? AND life = ?;
