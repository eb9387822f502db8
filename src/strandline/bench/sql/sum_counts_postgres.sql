-- All that was counted.
SELECT sum(n) FROM public.event_count;
