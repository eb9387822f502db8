-- Entries that wait behind others of their keys, by marks of these.
SELECT w.slot, w.id, w.number, w.hash, w.key, w.version, w.priority, w.process_date, w.insertion_date, w.revised_date,
  w.expiration_date, w.first_start, w.size, w.status, w.fence, w.owner, w.start_date, w.claimed_date, w.beat, w.lease,
  w.counter, w.retry_date
FROM unnest($1::bigint[], $2::bigint[]) AS given (journal, mark)
JOIN {schema}.work_{1}_order o ON o.journal = given.journal AND o.place = 2 AND o.priority = 0 AND o.date = given.mark
JOIN {schema}.work_{1}_whole w ON w.id = o.id AND w.slot = o.slot;
