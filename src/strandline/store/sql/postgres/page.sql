-- Events of a life by seq_nr. Both bounds are places in the primary key, so a page deep in a journal seeks.
SELECT seq_nr, prev_seq_nr, body, digest FROM {schema}.journal
WHERE key = $1 AND life = $2 AND (segment, seq_nr) >= ($3, $4) AND (segment, seq_nr) <= ($5, $6)
ORDER BY segment, seq_nr LIMIT $7;
