-- Entries whose date has come, the oldest first, and the bytes of their data.
SELECT slot, date, id, size FROM work_{1}_order WHERE journal = $1 AND place = 1 AND priority = 0 AND date <= $2
ORDER BY date, id LIMIT $3;
