-- Entries in the order of their ids, after one.
SELECT w.slot, w.id, w.number, w.hash, w.key, w.version, w.priority, w.process_date, w.insertion_date, w.revised_date,
  w.expiration_date, w.first_start, w.size, w.status, w.fence, w.owner, w.start_date, w.claimed_date, w.beat, w.lease,
  w.counter, w.retry_date
FROM {schema}.work_{1}_whole w WHERE w.journal = $1::bigint AND w.id > $2::bigint ORDER BY w.id LIMIT $3::bigint;
