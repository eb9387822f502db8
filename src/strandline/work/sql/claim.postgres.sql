-- Take the first due entries that nobody else is taking, of these priorities, in one step: W33. RETURNING has no order.
WITH chosen AS MATERIALIZED (
  SELECT slot, journal, place, priority, date, id, size FROM {schema}.work_{1}_order
  WHERE journal = $1::bigint AND place = 0 AND priority >= $2::bigint AND priority < $3::bigint
    AND (expiration_date = 0 OR expiration_date >= $4::bigint)
  ORDER BY priority, date, id LIMIT $5::bigint FOR UPDATE SKIP LOCKED
), fitting AS MATERIALIZED (
  SELECT slot, journal, place, priority, date, id, nextval('{schema}.work_{1}_number') AS fence FROM (
    SELECT *, sum(size) OVER (ORDER BY priority, date, id) - size AS before FROM chosen
  ) AS sized WHERE before < $8::bigint
), taken AS (
  DELETE FROM {schema}.work_{1}_order o USING fitting f
  WHERE o.journal = f.journal AND o.place = f.place AND o.priority = f.priority AND o.date = f.date AND o.id = f.id
    AND o.slot = f.slot
), started AS (
  INSERT INTO {schema}.work_{1}_state AS s (slot, id, journal, status, fence, owner, start_date, claimed_date, beat,
    lease, counter, retry_date, look_at)
  SELECT slot, id, $1, 'P', fence, $6::text, $4, $4, $4, $7::bigint, 0, 0, $4 + $7 + 1 FROM fitting
  ON CONFLICT (id, slot) DO UPDATE SET status = 'P', fence = excluded.fence, owner = excluded.owner,
    start_date = excluded.start_date, claimed_date = excluded.claimed_date, beat = excluded.beat,
    lease = excluded.lease, look_at = excluded.look_at
)
SELECT e.slot, e.id, e.number, e.hash, e.key, e.version, e.priority, e.process_date, e.insertion_date, e.revised_date,
  e.expiration_date, e.first_start, 0::bigint, 'P', f.fence, $6, $4, $4, $4, $7, coalesce(s.counter, 0),
  coalesce(s.retry_date, 0), e.data
FROM fitting f JOIN {schema}.work_{1}_entry e ON e.id = f.id AND e.slot = f.slot
LEFT JOIN {schema}.work_{1}_state s ON s.id = f.id AND s.slot = f.slot;
