-- $1 history_id, $2 stream, $3 group, $4 life, $5 definition, $6 step, $7 op, $8 fence, $9 void, $10 affected,
-- $11 outcome, $12 events
INSERT INTO {schema}.strandline_barrier (
    history_id, stream, group_id, life, definition, step, op, fence, void, affected, outcome, events, version
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 1)
