-- Which of these places in the order are taken, and keep claims away from them.
SELECT o.id, o.place
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
  AS given (journal, place, priority, date, id)
JOIN {schema}.work_{1}_order o ON o.journal = given.journal AND o.place = given.place AND o.priority = given.priority
  AND o.date = given.date AND o.id = given.id
ORDER BY o.id FOR UPDATE OF o;
