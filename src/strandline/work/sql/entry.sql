-- Entries: what is written once.

-- name: data_of (postgres)
-- The data of entries.
SELECT e.id, e.data FROM unnest($1::bigint[]) AS given (id) JOIN {schema}.work_{1}_entry e ON e.id = given.id;

-- name: data_of (sqlite)
-- The data of an entry.
SELECT id, data FROM work_{1}_entry WHERE id = $1;

-- name: end_entry (sqlite)
-- An entry whose claim was ended by done.
DELETE FROM work_{1}_entry WHERE id = $1 RETURNING id, hash, key;

-- name: expired (postgres)
-- Entries that expired and are not being processed, and their places in the order, as far as nobody is at them.
SELECT o.place, o.priority, o.date, o.id FROM {schema}.work_{1}_entry e
LEFT JOIN {schema}.work_{1}_state s ON s.id = e.id AND s.slot = e.slot
JOIN {schema}.work_{1}_order o ON o.journal = e.journal AND o.id = e.id AND o.slot = e.slot AND (
  (o.place = 0 AND o.priority = e.priority AND o.date = coalesce(nullif(s.retry_date, 0), e.process_date))
  OR (o.place = 1 AND o.priority = 0 AND o.date = coalesce(nullif(s.retry_date, 0), e.process_date)))
WHERE e.journal = $1::bigint AND e.expiration_date > 0 AND e.expiration_date < $2::bigint
  AND coalesce(s.status, 'W') <> 'P' LIMIT $3::bigint FOR UPDATE OF o SKIP LOCKED;

-- name: expired (sqlite)
-- Entries that expired and are not being processed, and their places in the order.
SELECT o.place, o.priority, o.date, o.id FROM work_{1}_entry e LEFT JOIN work_{1}_state s ON s.id = e.id
JOIN work_{1}_order o ON o.journal = e.journal AND o.id = e.id AND (
  (o.place = 0 AND o.priority = e.priority AND o.date = coalesce(nullif(s.retry_date, 0), e.process_date))
  OR (o.place = 1 AND o.priority = 0 AND o.date = coalesce(nullif(s.retry_date, 0), e.process_date)))
WHERE e.journal = $1 AND e.expiration_date > 0 AND e.expiration_date < $2
  AND coalesce(s.status, 'W') <> 'P' LIMIT $3;

-- name: find (postgres)
-- The entries of keys, by their hashes.
SELECT w.slot, w.id, w.number, w.hash, w.key, w.version, w.priority, w.process_date, w.insertion_date, w.revised_date,
  w.expiration_date, w.first_start, w.size, w.status, w.fence, w.owner, w.start_date, w.claimed_date, w.beat, w.lease,
  w.counter, w.retry_date
FROM unnest($1::bigint[], $2::bytea[]) AS given (journal, hash)
JOIN {schema}.work_{1}_whole w ON w.journal = given.journal AND w.hash = given.hash;

-- name: find (sqlite)
-- The entries of a key, by its hash.
SELECT w.slot, w.id, w.number, w.hash, w.key, w.version, w.priority, w.process_date, w.insertion_date, w.revised_date,
  w.expiration_date, w.first_start, w.size, w.status, w.fence, w.owner, w.start_date, w.claimed_date, w.beat, w.lease,
  w.counter, w.retry_date
FROM work_{1}_whole w WHERE w.journal = $1 AND w.hash = $2;

-- name: insert_alike (postgres)
-- Write entries that differ in number, key and data alone, and put them into the order: $10 to $12 say where.
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($13::bigint[], $14::bytea[], $15::bytea[], $16::bytea[]) AS g (id, hash, key, data)
), written AS (
  INSERT INTO {schema}.work_{1}_entry (journal, slot, id, number, hash, key, version, priority, process_date,
    insertion_date, revised_date, expiration_date, first_start, data)
  SELECT $1::bigint, $2::bigint, g.id, g.id, g.hash, g.key, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint,
    $8::bigint, $9::bigint, g.data FROM given g
)
INSERT INTO {schema}.work_{1}_order (journal, slot, place, priority, date, id, expiration_date, size)
SELECT $1, $2, $10::bigint, $11::bigint, $12::bigint, g.id, $8, octet_length(g.data)::bigint FROM given g;

-- name: insert_entry (postgres)
-- Write entries.
INSERT INTO {schema}.work_{1}_entry (journal, slot, id, number, hash, key, version, priority, process_date,
  insertion_date, revised_date, expiration_date, first_start, data)
SELECT $1::bigint, given.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[],
  $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
  $14::bytea[]) AS given;

-- name: insert_entry (sqlite)
-- Write an entry.
INSERT INTO work_{1}_entry (journal, slot, id, number, hash, key, version, priority, process_date, insertion_date,
  revised_date, expiration_date, first_start, data)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- name: left (postgres)
-- How many entries are left in a table, counted up to a limit.
SELECT count(*) FROM (SELECT FROM {schema}.work_{1}_entry WHERE slot = $1::bigint LIMIT $2::bigint) AS l;

-- name: left (sqlite)
-- How many entries are left, counted up to a limit.
SELECT count(*) FROM (SELECT 1 FROM work_{1}_entry WHERE $1 > 0 LIMIT $2);

-- name: move_entry (postgres)
-- Write entries of a table into another one.
WITH gone AS (DELETE FROM {schema}.work_{1}_entry e USING unnest($3::bigint[]) AS given (id)
  WHERE e.id = given.id AND e.slot = $1::bigint RETURNING e.*)
INSERT INTO {schema}.work_{1}_entry (slot, id, journal, number, version, priority, process_date, insertion_date,
  revised_date, expiration_date, first_start, hash, key, data)
SELECT $2::bigint, id, journal, number, version, priority, process_date, insertion_date, revised_date, expiration_date,
  first_start, hash, key, data FROM gone;

-- name: page
-- Entries in the order of their ids, after one.
SELECT w.slot, w.id, w.number, w.hash, w.key, w.version, w.priority, w.process_date, w.insertion_date, w.revised_date,
  w.expiration_date, w.first_start, w.size, w.status, w.fence, w.owner, w.start_date, w.claimed_date, w.beat, w.lease,
  w.counter, w.retry_date
FROM {schema}.work_{1}_whole w WHERE w.journal = $1::bigint AND w.id > $2::bigint ORDER BY w.id LIMIT $3::bigint;

-- name: remove_entry (postgres)
-- Remove entries.
DELETE FROM {schema}.work_{1}_entry e USING unnest($1::bigint[], $2::bigint[]) AS given (slot, id)
WHERE e.id = given.id AND e.slot = given.slot;

-- name: remove_entry (sqlite)
-- Remove an entry.
DELETE FROM work_{1}_entry WHERE slot = $1 AND id = $2;

-- name: whole (postgres)
-- Entries by their ids.
SELECT w.slot, w.id, w.number, w.hash, w.key, w.version, w.priority, w.process_date, w.insertion_date, w.revised_date,
  w.expiration_date, w.first_start, w.size, w.status, w.fence, w.owner, w.start_date, w.claimed_date, w.beat, w.lease,
  w.counter, w.retry_date
FROM unnest($1::bigint[], $2::bigint[]) AS given (journal, id)
JOIN {schema}.work_{1}_whole w ON w.journal = given.journal AND w.id = given.id;

-- name: whole (sqlite)
-- An entry by its id.
SELECT w.slot, w.id, w.number, w.hash, w.key, w.version, w.priority, w.process_date, w.insertion_date, w.revised_date,
  w.expiration_date, w.first_start, w.size, w.status, w.fence, w.owner, w.start_date, w.claimed_date, w.beat, w.lease,
  w.counter, w.retry_date
FROM work_{1}_whole w WHERE w.journal = $1 AND w.id = $2;
