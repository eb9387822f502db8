-- Entries that wait behind another of their key, by its mark.
SELECT w.slot, w.id, w.number, w.hash, w.key, w.version, w.priority, w.process_date, w.insertion_date, w.revised_date,
  w.expiration_date, w.first_start, w.size, w.status, w.fence, w.owner, w.start_date, w.claimed_date, w.beat, w.lease,
  w.counter, w.retry_date
FROM work_{1}_order o CROSS JOIN work_{1}_whole w ON w.id = o.id
WHERE o.journal = $1 AND o.place = 2 AND o.priority = 0 AND o.date = $2;
