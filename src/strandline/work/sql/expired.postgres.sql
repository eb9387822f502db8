-- Entries that expired and are not being processed, and their places in the order, as far as nobody is at them.
SELECT o.place, o.priority, o.date, o.id FROM {schema}.work_{1}_entry e
LEFT JOIN {schema}.work_{1}_state s ON s.id = e.id AND s.slot = e.slot
JOIN {schema}.work_{1}_order o ON o.journal = e.journal AND o.id = e.id AND o.slot = e.slot AND (
  (o.place = 0 AND o.priority = e.priority AND o.date = coalesce(nullif(s.retry_date, 0), e.process_date))
  OR (o.place = 1 AND o.priority = 0 AND o.date = coalesce(nullif(s.retry_date, 0), e.process_date)))
WHERE e.journal = $1::bigint AND e.expiration_date > 0 AND e.expiration_date < $2::bigint
  AND coalesce(s.status, 'W') <> 'P' LIMIT $3::bigint FOR UPDATE OF o SKIP LOCKED;
