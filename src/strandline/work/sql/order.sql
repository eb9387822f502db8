-- The order: places of entries that wait.

-- name: any_behind
-- Whether any entry of the journal waits behind another.
SELECT 1 FROM {schema}.work_{1}_order WHERE journal = $1::bigint AND place = 2 LIMIT 1;

-- name: behind (postgres)
-- Entries that wait behind others of their keys, by marks of these.
SELECT w.slot, w.id, w.number, w.hash, w.key, w.version, w.priority, w.process_date, w.insertion_date, w.revised_date,
  w.expiration_date, w.first_start, w.size, w.status, w.fence, w.owner, w.start_date, w.claimed_date, w.beat, w.lease,
  w.counter, w.retry_date
FROM unnest($1::bigint[], $2::bigint[]) AS given (journal, mark)
JOIN {schema}.work_{1}_order o ON o.journal = given.journal AND o.place = 2 AND o.priority = 0 AND o.date = given.mark
JOIN {schema}.work_{1}_whole w ON w.id = o.id AND w.slot = o.slot;

-- name: behind (sqlite)
-- Entries that wait behind another of their key, by its mark.
SELECT w.slot, w.id, w.number, w.hash, w.key, w.version, w.priority, w.process_date, w.insertion_date, w.revised_date,
  w.expiration_date, w.first_start, w.size, w.status, w.fence, w.owner, w.start_date, w.claimed_date, w.beat, w.lease,
  w.counter, w.retry_date
FROM work_{1}_order o CROSS JOIN work_{1}_whole w ON w.id = o.id
WHERE o.journal = $1 AND o.place = 2 AND o.priority = 0 AND o.date = $2;

-- name: choose (sqlite)
-- The first due entries of these priorities, with all that is known of them.
SELECT w.slot, w.id, w.number, w.hash, w.key, w.version, w.priority, w.process_date, w.insertion_date, w.revised_date,
  w.expiration_date, w.first_start, w.size, w.status, w.fence, w.owner, w.start_date, w.claimed_date, w.beat, w.lease,
  w.counter, w.retry_date, e.data
FROM (
  SELECT id, priority, date FROM work_{1}_order
  WHERE journal = $1 AND place = 0 AND priority >= $2 AND priority < $3
    AND (expiration_date = 0 OR expiration_date >= $4)
  ORDER BY priority, date, id LIMIT $5
) AS o CROSS JOIN work_{1}_whole w ON w.id = o.id CROSS JOIN work_{1}_entry e ON e.id = o.id
ORDER BY o.priority, o.date, o.id;

-- name: claim (postgres)
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

-- name: counts
-- How many entries there are: due, later, behind, running; dead letters, unacknowledged ones; the oldest due date; whether
-- the journal is paused.
SELECT
  (SELECT count(*) FROM {schema}.work_{1}_order WHERE journal = $1::bigint AND place IN (0, 1) AND date <= $2::bigint
    AND (expiration_date = 0 OR expiration_date >= $2))
  + (SELECT count(*) FROM {schema}.work_{1}_state WHERE journal = $1 AND status = 'P' AND $3::bigint - beat > lease),
  (SELECT count(*) FROM {schema}.work_{1}_order WHERE journal = $1 AND place = 1 AND date > $2),
  (SELECT count(*) FROM {schema}.work_{1}_order WHERE journal = $1 AND place = 2
    AND (expiration_date = 0 OR expiration_date >= $2)),
  (SELECT count(*) FROM {schema}.work_{1}_state WHERE journal = $1 AND status = 'P' AND $3 - beat <= lease),
  (SELECT count(*) FROM {schema}.work_dead WHERE journal = $1),
  (SELECT count(*) FROM {schema}.work_dead WHERE journal = $1 AND NOT acknowledged),
  (SELECT min(date) FROM {schema}.work_{1}_order WHERE journal = $1 AND place IN (0, 1) AND date <= $2
    AND (expiration_date = 0 OR expiration_date >= $2)),
  (SELECT paused FROM {schema}.work_journal WHERE number = $1);

-- name: heads
-- The first dates at which something happens: an entry is ready, one will be, a lease is to be looked at, one expires.
SELECT
  (SELECT min(priority) FROM (SELECT priority FROM {schema}.work_{1}_order
    WHERE journal = $1::bigint AND place = 0 AND (expiration_date = 0 OR expiration_date >= $2::bigint)
    ORDER BY priority, date, id LIMIT 1) AS r),
  (SELECT min(date) FROM (SELECT date FROM {schema}.work_{1}_order
    WHERE journal = $1 AND place = 1 ORDER BY priority, date, id LIMIT 1) AS t),
  (SELECT min(look_at) FROM (SELECT look_at FROM {schema}.work_{1}_state
    WHERE journal = $1 AND status = 'P' ORDER BY look_at LIMIT 1) AS u),
  (SELECT min(expiration_date) FROM (SELECT expiration_date FROM {schema}.work_{1}_entry
    WHERE journal = $1 AND expiration_date > 0 ORDER BY expiration_date LIMIT 1) AS v);

-- name: insert_order (postgres)
-- Put entries into the order.
INSERT INTO {schema}.work_{1}_order (journal, slot, place, priority, date, id, expiration_date, size)
SELECT $1::bigint, given.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
  $7::bigint[], $8::bigint[]) AS given;

-- name: insert_order (sqlite)
-- Put an entry into the order.
INSERT INTO work_{1}_order (journal, slot, place, priority, date, id, expiration_date, size)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: lock_keys (postgres)
-- Keep other adds of these keys waiting: $1 is the journal's lock, which an add of many keys takes alone.
SELECT pg_advisory_xact_lock_shared($1::bigint), (SELECT count(pg_advisory_xact_lock(k)) FROM unnest($2::bigint[]) AS k);

-- name: movable_order (postgres)
-- What waits in a table, as far as nobody is at it.
SELECT journal, place, priority, date, id FROM {schema}.work_{1}_order WHERE slot = $1::bigint LIMIT $2::bigint
FOR UPDATE SKIP LOCKED;

-- name: move_order (postgres)
-- The same of their places in the order.
WITH gone AS (DELETE FROM {schema}.work_{1}_order o
  USING unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
    AS given (journal, place, priority, date, id)
  WHERE o.journal = given.journal AND o.place = given.place AND o.priority = given.priority AND o.date = given.date
    AND o.id = given.id AND o.slot = $1::bigint RETURNING o.*)
INSERT INTO {schema}.work_{1}_order (slot, journal, place, priority, date, id, expiration_date, size)
SELECT $2::bigint, journal, place, priority, date, id, expiration_date, size FROM gone;

-- name: places (postgres)
-- Which of these places in the order are taken, and keep claims away from them.
SELECT o.id, o.place
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
  AS given (journal, place, priority, date, id)
JOIN {schema}.work_{1}_order o ON o.journal = given.journal AND o.place = given.place AND o.priority = given.priority
  AND o.date = given.date AND o.id = given.id
ORDER BY o.id FOR UPDATE OF o;

-- name: places (sqlite)
-- Whether this place in the order is taken.
SELECT id, place FROM work_{1}_order WHERE journal = $1 AND place = $2 AND priority = $3 AND date = $4 AND id = $5;

-- name: remove_order (postgres)
-- Take entries out of the order.
DELETE FROM {schema}.work_{1}_order o
USING unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
  AS given (journal, place, priority, date, id)
WHERE o.journal = given.journal AND o.place = given.place AND o.priority = given.priority AND o.date = given.date
  AND o.id = given.id;

-- name: remove_order (sqlite)
-- Take an entry out of the order.
DELETE FROM work_{1}_order WHERE journal = $1 AND place = $2 AND priority = $3 AND date = $4 AND id = $5;

-- name: due_soon (postgres)
-- Entries whose date has come, the oldest first, and the bytes of their data; the later table's are in slot 0.
SELECT o.slot, o.date, o.id, o.size FROM {schema}.work_{1}_order o WHERE o.journal = $1::bigint AND o.place = 1
  AND o.priority = 0 AND o.date <= $2::bigint
ORDER BY o.date, o.id LIMIT $3::bigint FOR UPDATE SKIP LOCKED;

-- name: due_soon (sqlite)
-- Entries whose date has come, the oldest first, and the bytes of their data.
SELECT slot, date, id, size FROM work_{1}_order WHERE journal = $1 AND place = 1 AND priority = 0 AND date <= $2
ORDER BY date, id LIMIT $3;

-- name: promote_due (postgres)
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

-- name: promote_due (sqlite)
-- Put an entry whose date has come where claims take it from.
UPDATE work_{1}_order SET place = 0, priority = (SELECT e.priority FROM work_{1}_entry e WHERE e.id = work_{1}_order.id)
WHERE $1 > 0 AND journal = $2 AND place = $3 AND priority = $4 AND $5 > 0 AND date = $6 AND id = $7;
