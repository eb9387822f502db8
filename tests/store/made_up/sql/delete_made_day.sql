-- Events of a life from one number to another.
DELETE FROM {schema}.made_day WHERE key = $1 AND life = $2 AND seq_nr >= $3 AND seq_nr <= $4;
