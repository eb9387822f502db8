-- Events of a day, after a place, up to a time.
SELECT day, timestamp, key, seq_nr, life, note, digest FROM {schema}.made_day
WHERE day = $1 AND (timestamp, key, seq_nr) > ($2, $3, $4) AND timestamp <= $5
ORDER BY timestamp, key, seq_nr LIMIT $6;
