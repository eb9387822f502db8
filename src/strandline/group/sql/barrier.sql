-- Barrier rows: proof in a target of what a step did.

-- name: add_barrier
-- $1 owner, $2 group, $3 life, $4 definition, $5 step, $6 op, $7 fence, $8 void, $9 outcome
INSERT INTO {schema}.strandline_barrier (
    owner, group_id, life, definition, step, op, fence, void, outcome, version
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1)

-- name: forget_barriers
-- $1 owner, $2 group, $3 life
DELETE FROM {schema}.strandline_barrier WHERE group_id = $2 AND life = $3 AND owner = $1

-- name: group_barriers
-- $1 owner, $2 group, $3 life
SELECT definition, step, op, fence, void, outcome FROM {schema}.strandline_barrier
WHERE group_id = $2 AND life = $3 AND owner = $1

-- name: make_barrier (postgres)
-- Proof that a step was done (`do`) or undone (`undo`); void: that it never ran, and never will.
CREATE TABLE IF NOT EXISTS {schema}.strandline_barrier (
    owner text NOT NULL,
    group_id text NOT NULL,
    life bigint NOT NULL,
    definition text NOT NULL,
    step text NOT NULL,
    op text NOT NULL,
    fence bigint NOT NULL,
    void integer NOT NULL,
    outcome bytea NOT NULL,
    version integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (group_id, life, step, op, definition, owner)
)

-- name: make_barrier (sqlite)
CREATE TABLE IF NOT EXISTS {schema}.strandline_barrier (
    owner text NOT NULL,
    group_id text NOT NULL,
    life integer NOT NULL,
    definition text NOT NULL,
    step text NOT NULL,
    op text NOT NULL,
    fence integer NOT NULL,
    void integer NOT NULL,
    outcome blob NOT NULL,
    version integer NOT NULL,
    at integer NOT NULL DEFAULT (unixepoch()),
    PRIMARY KEY (group_id, life, step, op, definition, owner)
) WITHOUT ROWID

-- name: make_barrier_index (postgres)
-- Rows come in the order of their times, so that this is small and quick to write.
CREATE INDEX IF NOT EXISTS strandline_barrier_at ON {schema}.strandline_barrier USING brin (at)

-- name: make_barrier_index (sqlite)
-- What is old is found by it.
CREATE INDEX IF NOT EXISTS {schema}.strandline_barrier_at ON strandline_barrier (at)

-- name: old_barriers (postgres)
-- Groups of which there are rows older than so many seconds, by this database's clock. $1 owner, $2 seconds, $3 limit
SELECT DISTINCT group_id, life FROM {schema}.strandline_barrier
WHERE owner = $1 AND at < now() - make_interval(secs => $2) LIMIT $3

-- name: old_barriers (sqlite)
-- Groups of which there are rows older than so many seconds, by this machine's clock. $1 owner, $2 seconds, $3 limit
SELECT DISTINCT group_id, life FROM {schema}.strandline_barrier WHERE owner = $1 AND at < unixepoch() - $2 LIMIT $3
