-- Record an action at its place.
INSERT INTO action (place, timestamp, key, header, value, life, first, last) VALUES (?, ?, ?, ?, ?, ?, ?, ?);
