-- $1 owner, $2 group, $3 life, $4 definition, $5 step, $6 op, $7 fence, $8 void, $9 affected, $10 outcome, $11 events
INSERT INTO {schema}.strandline_barrier (
    owner, group_id, life, definition, step, op, fence, void, affected, outcome, events, version
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 1)
