-- Put entries whose date has come where claims take them from; $1 is the current slot, for those of the later table.
WITH gone AS (
  DELETE FROM {schema}.work_{1}_order o USING unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
    AS given (journal, place, priority, slot, date, id)
  WHERE o.journal = given.journal AND o.place = given.place AND o.priority = given.priority AND o.date = given.date AND o.id = given.id
    AND o.slot = given.slot
  RETURNING o.journal, o.slot, o.date, o.id, o.expiration_date, o.size
)
INSERT INTO {schema}.work_{1}_order (journal, slot, place, priority, date, id, expiration_date, size)
SELECT g.journal, CASE WHEN g.slot = 0 THEN $1::bigint ELSE g.slot END, 0, e.priority, g.date, g.id, g.expiration_date, g.size
FROM gone g JOIN {schema}.work_{1}_entry e ON e.id = g.id AND e.slot = g.slot;
