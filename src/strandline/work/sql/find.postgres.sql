-- The entries of keys, by their hashes.
SELECT w.slot, w.id, w.number, w.hash, w.key, w.version, w.priority, w.process_date, w.insertion_date, w.revised_date,
  w.expiration_date, w.first_start, w.size, w.status, w.fence, w.owner, w.start_date, w.claimed_date, w.beat, w.lease,
  w.counter, w.retry_date
FROM unnest($1::bigint[], $2::bytea[]) AS given (journal, hash)
JOIN {schema}.work_{1}_whole w ON w.journal = given.journal AND w.hash = given.hash;
