-- $1 history_id, $2 stream, $3 group, $4 life
DELETE FROM {schema}.strandline_barrier WHERE group_id = $3 AND life = $4 AND history_id = $1 AND stream = $2
