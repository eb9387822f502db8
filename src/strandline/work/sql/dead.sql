-- Dead letters.

-- name: acknowledge
-- Lower the flag of a dead letter.
UPDATE {schema}.work_dead SET acknowledged = (1 = 1) WHERE journal = $1::bigint AND dead_id = $2::bigint;

-- name: add_dead (postgres)
-- Keep dead letters.
INSERT INTO {schema}.work_dead (journal, dead_id, id, number, hash, key, data, version, priority, insertion_date,
  revised_date, expiration_date, counter, reason, owner, date, acknowledged)
SELECT $1::bigint, given.*, false FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[],
  $7::bytea[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
  $14::text[], $15::text[], $16::bigint[]) AS given;

-- name: add_dead (sqlite)
-- Keep a dead letter.
INSERT INTO work_dead (journal, dead_id, id, number, hash, key, data, version, priority, insertion_date, revised_date,
  expiration_date, counter, reason, owner, date, acknowledged)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, 0);

-- name: dead
-- Dead letters after one; $4: only those that nobody acknowledged.
SELECT dead_id, id, key, data, version, priority, insertion_date, revised_date, expiration_date, counter, reason,
  owner, date, acknowledged
FROM {schema}.work_dead WHERE journal = $1::bigint AND dead_id > $2::bigint AND (NOT $4::boolean OR NOT acknowledged)
ORDER BY dead_id LIMIT $3::bigint;

-- name: dead_of_entry
-- The dead letter that an entry has become, the latest of them.
SELECT max(dead_id) FROM {schema}.work_dead WHERE journal = $1::bigint AND id = $2::bigint;

-- name: forget_dead
-- Remove dead letters that are older than they are kept.
DELETE FROM {schema}.work_dead WHERE journal = $1::bigint AND date < $2::bigint;

-- name: take_dead
-- Remove a dead letter that is to wait again.
DELETE FROM {schema}.work_dead WHERE journal = $1::bigint AND dead_id = $2::bigint
RETURNING key, hash, data, version, priority, revised_date, expiration_date, number;
