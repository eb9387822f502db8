-- What was counted of a life.
DELETE FROM {schema}.made_total WHERE key = $1 AND life = $2;
