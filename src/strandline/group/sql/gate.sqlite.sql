-- The fence, and the barrier rows of a step. $1 owner, $2 group, $3 life, $4 definition, $5 step
SELECT t.fence, b.op, b.fence, b.void, b.affected, b.outcome, b.events
FROM {schema}.strandline_target AS t
LEFT JOIN {schema}.strandline_barrier AS b
ON b.group_id = $2 AND b.life = $3 AND b.step = $5 AND b.definition = $4 AND b.owner = t.owner
WHERE t.owner = $1
