-- The table that a benchmarked projection counts in.

-- name: count_event_postgres
-- One event more of a key.
INSERT INTO public.event_count AS c (key, n) VALUES (%s, 1) ON CONFLICT (key) DO UPDATE SET n = c.n + 1;

-- name: count_event_sqlite
-- One event more of a key.
INSERT INTO event_count (key, n) VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET n = n + 1;

-- name: count_events_postgres
-- Some events more of a key.
INSERT INTO public.event_count AS c (key, n) VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET n = c.n + excluded.n;

-- name: count_events_sqlite
-- Some events more of a key.
INSERT INTO event_count (key, n) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET n = n + excluded.n;

-- name: create_count_postgres
-- What a projection counts.
CREATE TABLE IF NOT EXISTS public.event_count (key text PRIMARY KEY, n bigint NOT NULL);

-- name: create_count_sqlite
-- What a projection counts.
CREATE TABLE IF NOT EXISTS event_count (key TEXT PRIMARY KEY, n INTEGER NOT NULL);

-- name: sum_counts_postgres
-- All that was counted.
SELECT sum(n) FROM public.event_count;

-- name: sum_counts_sqlite
-- All that was counted.
SELECT sum(n) FROM event_count;
