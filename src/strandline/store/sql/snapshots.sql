-- Snapshots of a life after a number, up to another, without their states.
SELECT seq_nr, timestamp, form FROM {schema}.snapshot
WHERE key = $1 AND life = $2 AND seq_nr > $3 AND seq_nr <= $4 ORDER BY seq_nr LIMIT $5;
