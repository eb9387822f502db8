-- The first due entries of these priorities, with all that is known of them.
SELECT w.slot, w.id, w.number, w.hash, w.key, w.version, w.priority, w.process_date, w.insertion_date, w.revised_date,
  w.expiration_date, w.first_start, w.size, w.status, w.fence, w.owner, w.start_date, w.claimed_date, w.beat, w.lease,
  w.counter, w.retry_date, e.data
FROM (
  SELECT id, priority, date FROM work_{1}_order
  WHERE journal = $1 AND place = 0 AND priority >= $2 AND priority < $3
    AND (expiration_date = 0 OR expiration_date >= $4)
  ORDER BY priority, date, id LIMIT $5
) AS o CROSS JOIN work_{1}_whole w ON w.id = o.id CROSS JOIN work_{1}_entry e ON e.id = o.id
ORDER BY o.priority, o.date, o.id;
