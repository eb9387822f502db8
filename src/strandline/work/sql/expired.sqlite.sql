-- Entries that expired and are not being processed, and their places in the order.
SELECT o.place, o.priority, o.date, o.id FROM work_{1}_entry e LEFT JOIN work_{1}_state s ON s.id = e.id
JOIN work_{1}_order o ON o.journal = e.journal AND o.id = e.id AND (
  (o.place = 0 AND o.priority = e.priority AND o.date = coalesce(nullif(s.retry_date, 0), e.process_date))
  OR (o.place = 1 AND o.priority = 0 AND o.date = coalesce(nullif(s.retry_date, 0), e.process_date)))
WHERE e.journal = $1 AND e.expiration_date > 0 AND e.expiration_date < $2
  AND coalesce(s.status, 'W') <> 'P' LIMIT $3;
