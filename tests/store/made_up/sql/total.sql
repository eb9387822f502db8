-- Totals of keys.

-- name: made_total_of
-- What was counted of a life.
SELECT key, life, events, seq_nr, timestamp, digest FROM {schema}.made_total WHERE key = $1 AND life = $2 LIMIT $3;
