-- The action at a place: its timestamp.
SELECT timestamp FROM place WHERE partition = ? AND log_offset = ?;
