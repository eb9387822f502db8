-- Proof that a step was done (`do`) or undone (`undo`); void: that it never ran, and never will.
CREATE TABLE IF NOT EXISTS {schema}.strandline_barrier (
    owner text NOT NULL,
    group_id text NOT NULL,
    life integer NOT NULL,
    definition text NOT NULL,
    step text NOT NULL,
    op text NOT NULL,
    fence integer NOT NULL,
    void integer NOT NULL,
    affected integer NOT NULL,
    outcome blob NOT NULL,
    events blob NOT NULL,
    version integer NOT NULL,
    at integer NOT NULL DEFAULT (unixepoch()),
    PRIMARY KEY (group_id, life, step, op, definition, owner)
) WITHOUT ROWID
