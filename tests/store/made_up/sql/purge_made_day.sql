-- All events of a life.
DELETE FROM {schema}.made_day WHERE key = $1 AND life = $2;
