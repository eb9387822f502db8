-- The state: what claims change.

-- name: beat (postgres)
-- Heartbeats: $1 is now, by both clocks.
UPDATE {schema}.work_{1}_state s SET start_date = $1::bigint, beat = $2::bigint
FROM unnest($3::bigint[], $4::bigint[]) AS given (id, fence)
WHERE s.id = given.id AND s.fence = given.fence AND s.status = 'P' AND $2 - s.beat <= s.lease
RETURNING s.id;

-- name: beat (sqlite)
-- A heartbeat: $1 is now, $2 is now by the clock of leases.
UPDATE work_{1}_state SET start_date = $1, beat = $2
WHERE id = $3 AND fence = $4 AND status = 'P' AND $2 - beat <= lease RETURNING id;

-- name: boot (sqlite)
-- The machine was started again: who held a claim is gone.
UPDATE work_{1}_state SET beat = 0 - lease - 1, look_at = 0 WHERE status = 'P';

-- name: end (postgres)
-- End claims that nobody else has ended: the entries are gone. Their rows are looked up one by one, where they were when
-- they were claimed, and locked in the order that is given, of ids: no plan walks over what others have ended before.
WITH held AS MATERIALIZED (
  SELECT found.id, found.slot FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS given (id, fence, slot)
  CROSS JOIN LATERAL (
    SELECT s.id, s.slot FROM {schema}.work_{1}_state s
    WHERE s.id = given.id AND s.slot = given.slot AND s.fence = given.fence AND s.status = 'P' FOR UPDATE
  ) AS found
), ended AS (
  DELETE FROM {schema}.work_{1}_state s USING held h WHERE s.id = h.id AND s.slot = h.slot
)
DELETE FROM {schema}.work_{1}_entry e USING held h WHERE e.id = h.id AND e.slot = h.slot RETURNING e.id, e.hash, e.key;

-- name: end (sqlite)
-- End a claim that nobody else has ended.
DELETE FROM work_{1}_state WHERE id = $1 AND fence = $2 AND slot = $3 AND status = 'P' RETURNING id;

-- name: end_leases
-- The leases of all claims are over, and nobody knows their fences, which are larger by so much.
UPDATE {schema}.work_{1}_state SET beat = 0 - lease - 1, look_at = 0, fence = fence + $1::bigint WHERE status = 'P';

-- name: hold_running (postgres)
-- Let nobody end or extend these claims before we commit.
SELECT s.id, s.fence, s.status FROM {schema}.work_{1}_state s WHERE s.id = ANY($1::bigint[]) ORDER BY s.id FOR UPDATE;

-- name: insert_state (postgres)
-- What claims left behind, where entries are written anew.
INSERT INTO {schema}.work_{1}_state (journal, slot, id, status, fence, owner, start_date, claimed_date, beat, lease,
  counter, retry_date, look_at)
SELECT $1::bigint, given.* FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::text[],
  $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[]) AS given;

-- name: insert_state (sqlite)
-- What claims left behind, where an entry is written anew.
INSERT INTO work_{1}_state (journal, slot, id, status, fence, owner, start_date, claimed_date, beat, lease, counter,
  retry_date, look_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);

-- name: lapsed
-- Claims whose lease is to be looked at by now, the oldest first; those that somebody deals with are left out.
SELECT id FROM {schema}.work_{1}_state WHERE journal = $1::bigint AND status = 'P' AND look_at <= $2::bigint
ORDER BY look_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED;

-- name: look_later (postgres)
-- When to look at leases that heartbeats have moved.
UPDATE {schema}.work_{1}_state s SET look_at = given.look_at
FROM unnest($1::bigint[], $2::bigint[]) AS given (id, look_at) WHERE s.id = given.id;

-- name: look_later (sqlite)
-- When to look at a lease that heartbeats have moved.
UPDATE work_{1}_state SET look_at = $2 WHERE id = $1;

-- name: movable_state (postgres)
-- What is claimed in a table, as far as nobody is at it.
SELECT id FROM {schema}.work_{1}_state WHERE slot = $1::bigint AND status = 'P' LIMIT $2::bigint FOR UPDATE SKIP LOCKED;

-- name: move_state (postgres)
-- The same of what claims changed.
WITH gone AS (DELETE FROM {schema}.work_{1}_state s USING unnest($3::bigint[]) AS given (id)
  WHERE s.id = given.id AND s.slot = $1::bigint RETURNING s.*)
INSERT INTO {schema}.work_{1}_state (slot, id, journal, fence, start_date, claimed_date, beat, lease, counter,
  retry_date, look_at, status, owner)
SELECT $2::bigint, id, journal, fence, start_date, claimed_date, beat, lease, counter, retry_date, look_at, status, owner
FROM gone;

-- name: remove_state (postgres)
-- Remove what claims left behind.
DELETE FROM {schema}.work_{1}_state s USING unnest($1::bigint[], $2::bigint[]) AS given (slot, id)
WHERE s.id = given.id AND s.slot = given.slot;

-- name: remove_state (sqlite)
DELETE FROM work_{1}_state WHERE slot = $1 AND id = $2;

-- name: share_running (postgres)
-- Let claims go on, but not end, before we commit.
SELECT s.id, s.fence, s.status FROM {schema}.work_{1}_state s WHERE s.id = ANY($1::bigint[]) ORDER BY s.id FOR KEY SHARE;

-- name: start (sqlite)
-- Hand an entry to its claimer.
INSERT INTO work_{1}_state (journal, slot, id, status, fence, owner, start_date, claimed_date, beat, lease, counter,
  retry_date, look_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (id) DO UPDATE SET status = 'P', fence = excluded.fence, owner = excluded.owner,
  start_date = excluded.start_date, claimed_date = excluded.claimed_date, beat = excluded.beat,
  lease = excluded.lease, look_at = excluded.look_at;

-- name: wait_again (postgres)
-- Claims that ended otherwise than by done.
UPDATE {schema}.work_{1}_state s SET status = given.status, counter = given.counter, retry_date = given.retry_date
FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) AS given (id, status, counter, retry_date)
WHERE s.id = given.id;

-- name: wait_again (sqlite)
-- A claim that ended otherwise than by done.
UPDATE work_{1}_state SET status = $2, counter = $3, retry_date = $4 WHERE id = $1;
