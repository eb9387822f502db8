-- Remove one event.
DELETE FROM {schema}.journal WHERE key = $1 AND life = $2 AND segment = $3 AND seq_nr = $4;
