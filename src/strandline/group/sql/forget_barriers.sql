-- $1 owner, $2 group, $3 life
DELETE FROM {schema}.strandline_barrier WHERE group_id = $2 AND life = $3 AND owner = $1
