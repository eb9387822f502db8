-- The event that stands at a place.
SELECT key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
FROM journal WHERE key = ?1 AND life = ?2 AND segment = ?3 AND seq_nr = ?4;
