-- Put an entry into the order.
INSERT INTO work_{1}_order (journal, slot, place, priority, date, id, expiration_date, size)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);
