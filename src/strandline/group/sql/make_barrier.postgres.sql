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
    affected bigint NOT NULL,
    outcome bytea NOT NULL,
    events bytea NOT NULL,
    version integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (group_id, life, step, op, definition, owner)
)
