-- The event that stands at the place of this one, and whether it is the same.
SELECT key, life, seq_nr,
    (prev_seq_nr, entity_type, slice, partition, timestamp, body, digest) = (?5, ?6, ?7, ?8, ?9, ?10, ?11)
FROM journal WHERE key = ?1 AND life = ?2 AND segment = ?3 AND seq_nr = ?4;
