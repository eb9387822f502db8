-- The last row of a key, for each of many.
INSERT INTO projection_offset (projection, epoch, slice, key, life, seq_nr, timestamp, parked)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (projection, epoch, slice, key)
DO UPDATE SET life = excluded.life, seq_nr = excluded.seq_nr, timestamp = excluded.timestamp, parked = excluded.parked;
