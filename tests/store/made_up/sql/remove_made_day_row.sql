-- One event, which a correction takes or writes anew.
DELETE FROM {schema}.made_day WHERE day = $1 AND timestamp = $2 AND key = $3 AND seq_nr = $4;
