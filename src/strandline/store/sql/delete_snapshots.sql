-- Remove the snapshots of a life up to a seq_nr.
DELETE FROM snapshot WHERE key = ? AND life = ? AND seq_nr <= ?;
