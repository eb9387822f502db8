-- Remove one event.
DELETE FROM journal WHERE key = ? AND life = ? AND segment = ? AND seq_nr = ?;
