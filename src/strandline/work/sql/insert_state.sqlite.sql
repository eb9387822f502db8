-- What claims left behind, where an entry is written anew.
INSERT INTO work_{1}_state (journal, slot, id, status, fence, owner, start_date, claimed_date, beat, lease, counter,
  retry_date, look_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);
