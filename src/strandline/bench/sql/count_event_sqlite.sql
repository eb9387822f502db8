-- One event more of a key.
INSERT INTO event_count (key, n) VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET n = n + 1;
