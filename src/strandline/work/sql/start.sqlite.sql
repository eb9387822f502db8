-- Hand an entry to its claimer.
INSERT INTO work_{1}_state (journal, slot, id, status, fence, owner, start_date, claimed_date, beat, lease, counter,
  retry_date, look_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (id) DO UPDATE SET status = 'P', fence = excluded.fence, owner = excluded.owner,
  start_date = excluded.start_date, claimed_date = excluded.claimed_date, beat = excluded.beat,
  lease = excluded.lease, look_at = excluded.look_at;
