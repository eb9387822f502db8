-- The lease: who may write the store, and what the pipeline reported last.

-- step: 010_lease (postgres)
-- Who carries. The fence only grows; the row is never removed. The holder moves the beat; `beaten` is when, by the
-- server's clock (µs).
CREATE TABLE IF NOT EXISTS {schema}.lease (
    name text NOT NULL PRIMARY KEY,
    fence bigint NOT NULL,
    holder text,
    since bigint,
    beat bigint NOT NULL,
    beaten bigint NOT NULL,
    errors text
);

-- step: 010_lease (sqlite)
-- Who carries. The fence only grows; the row is never removed.
CREATE TABLE lease (
    name TEXT PRIMARY KEY,
    fence INTEGER NOT NULL,
    holder TEXT,
    since INTEGER,
    errors TEXT
) STRICT, WITHOUT ROWID;

-- name: beat (postgres)
-- The holder of this fence lives.
UPDATE {schema}.lease SET beat = beat + 1, beaten = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
WHERE name = $1 AND fence = $2 AND holder IS NOT NULL;

-- name: lease (postgres)
-- Fence, holder, start and beat of the lease, and for how long the beat has been still (µs).
SELECT fence, holder, since, beat, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - beaten
FROM {schema}.lease WHERE name = $1;

-- name: lease (sqlite)
-- Fence, holder and start of the lease.
SELECT fence, holder, since FROM lease WHERE name = ?;

-- name: leap_leases
-- Nobody holds a lease; all fences are larger by so much.
UPDATE {schema}.lease SET holder = NULL, since = NULL, fence = fence + $1::bigint;

-- name: release_lease (postgres)
-- Nobody holds the lease of this fence any more.
UPDATE {schema}.lease SET holder = NULL, since = NULL, beat = beat + 1 WHERE name = $1 AND fence = $2;

-- name: release_lease (sqlite)
UPDATE lease SET holder = NULL, since = NULL WHERE name = ? AND fence = ?;

-- name: report
-- Partitions that fail and why, as JSON, from the holder of this fence.
UPDATE {schema}.lease SET errors = $1 WHERE name = $2 AND fence = $3;

-- name: reported
-- What the pipeline last said of partitions that fail.
SELECT errors FROM {schema}.lease WHERE name = $1 AND errors IS NOT NULL;

-- name: take_lease (postgres)
-- Raise the fence and name the holder, who has no errors yet; nothing if the row is not as it was seen.
INSERT INTO {schema}.lease AS held (name, fence, holder, since, beat, beaten, errors)
SELECT $1::text, 1, $2::text, coalesce($5::bigint, clock.now), 0, clock.now, NULL
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) AS clock
ON CONFLICT (name) DO UPDATE
SET fence = held.fence + 1, holder = excluded.holder, since = excluded.since, beat = held.beat + 1,
    beaten = excluded.beaten, errors = NULL
WHERE held.fence = $3::bigint AND held.beat = $4::bigint
RETURNING fence;

-- name: take_lease (sqlite)
-- Raise the fence and name the holder, who has no errors yet.
INSERT INTO lease (name, fence, holder, since, errors) VALUES (?, 1, ?, ?, NULL)
ON CONFLICT (name) DO UPDATE SET fence = fence + 1, holder = excluded.holder, since = excluded.since, errors = NULL
RETURNING fence;
