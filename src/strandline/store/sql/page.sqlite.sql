-- Events of a life by seq_nr. Both bounds are places in the primary key, so a page deep in a journal seeks.
-- A body larger than that is left out: a page of them may be larger than memory.
SELECT seq_nr, prev_seq_nr, CASE WHEN length(body) <= ? THEN body END, digest FROM journal
WHERE key = ? AND life = ? AND (segment, seq_nr) >= (?, ?) AND (segment, seq_nr) <= (?, ?)
ORDER BY segment, seq_nr LIMIT ?;
