-- All that was counted.
SELECT sum(n) FROM event_count;
