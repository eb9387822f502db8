-- Some events more of a key.
INSERT INTO event_count (key, n) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET n = n + excluded.n;
