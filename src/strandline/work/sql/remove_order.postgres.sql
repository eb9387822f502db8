-- Take entries out of the order.
DELETE FROM {schema}.work_{1}_order o
USING unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
  AS given (journal, place, priority, date, id)
WHERE o.journal = given.journal AND o.place = given.place AND o.priority = given.priority AND o.date = given.date
  AND o.id = given.id;
