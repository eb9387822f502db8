-- The row of a key, for each of many.
SELECT key, life, seq_nr, timestamp, parked
FROM projection_offset
WHERE projection = ?1 AND epoch = ?2 AND slice = ?3 AND key = ?4;
