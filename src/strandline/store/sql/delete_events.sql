-- Remove events of a life between two places.
DELETE FROM journal
WHERE key = ? AND life = ? AND (segment, seq_nr) >= (?, ?) AND (segment, seq_nr) <= (?, ?);
