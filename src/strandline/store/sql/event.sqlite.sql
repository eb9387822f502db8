-- The event at a place.
SELECT key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
FROM journal WHERE key = ? AND life = ? AND segment = ? AND seq_nr = ?;
