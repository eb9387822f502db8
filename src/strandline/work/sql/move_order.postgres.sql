-- The same of their places in the order.
WITH gone AS (DELETE FROM {schema}.work_{1}_order o
  USING unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
    AS given (journal, place, priority, date, id)
  WHERE o.journal = given.journal AND o.place = given.place AND o.priority = given.priority AND o.date = given.date
    AND o.id = given.id AND o.slot = $1::bigint RETURNING o.*)
INSERT INTO {schema}.work_{1}_order (slot, journal, place, priority, date, id, expiration_date, size)
SELECT $2::bigint, journal, place, priority, date, id, expiration_date, size FROM gone;
