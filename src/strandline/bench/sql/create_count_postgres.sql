-- What a projection counts.
CREATE TABLE IF NOT EXISTS public.event_count (key text PRIMARY KEY, n bigint NOT NULL);
