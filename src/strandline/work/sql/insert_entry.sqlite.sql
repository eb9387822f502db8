-- Write an entry.
INSERT INTO work_{1}_entry (journal, slot, id, number, hash, key, version, priority, process_date, insertion_date,
  revised_date, expiration_date, first_start, data)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);
