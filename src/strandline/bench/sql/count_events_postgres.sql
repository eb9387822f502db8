-- Some events more of a key.
INSERT INTO public.event_count AS c (key, n) VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET n = c.n + excluded.n;
