-- One event more of a key.
INSERT INTO public.event_count AS c (key, n) VALUES (%s, 1) ON CONFLICT (key) DO UPDATE SET n = c.n + 1;
