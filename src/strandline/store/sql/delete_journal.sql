-- Remove events of a life from one number to another, which stand in these segments.
DELETE FROM {schema}.journal
WHERE key = $1 AND life = $2 AND (segment, seq_nr) >= ($5, $3) AND (segment, seq_nr) <= ($6, $4);
