-- Epoch and line of a projection, and the row of a key if it has one; for each of many.
SELECT p.epoch, p.line, o.key, o.life, o.seq_nr, o.timestamp, o.parked
FROM projection AS p
LEFT JOIN projection_offset AS o ON o.projection = p.id AND o.epoch = ?2 AND o.slice = ?3 AND o.key = ?4
WHERE p.id = ?1;
