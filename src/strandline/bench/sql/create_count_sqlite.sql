-- What a projection counts.
CREATE TABLE IF NOT EXISTS event_count (key TEXT PRIMARY KEY, n INTEGER NOT NULL);
