-- Keep a dead letter.
INSERT INTO work_dead (journal, dead_id, id, number, hash, key, data, version, priority, insertion_date, revised_date,
  expiration_date, counter, reason, owner, date, acknowledged)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, 0);
