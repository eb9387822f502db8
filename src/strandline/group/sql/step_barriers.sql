-- $1 owner, $2 group, $3 life, $4 definition, $5 step
SELECT op, fence, void, affected, outcome, events FROM {schema}.strandline_barrier
WHERE group_id = $2 AND life = $3 AND step = $5 AND definition = $4 AND owner = $1
