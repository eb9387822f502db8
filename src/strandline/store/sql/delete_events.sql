-- Remove events of a life between two places.
DELETE FROM {schema}.journal
WHERE key = $1 AND life = $2 AND (segment, seq_nr) >= ($3, $4) AND (segment, seq_nr) <= ($5, $6);
