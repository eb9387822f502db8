-- Waits for the steps under way, which read the row. $1 owner, $2 fence
UPDATE {schema}.strandline_target SET fence = $2 WHERE owner = $1 AND fence <= $2
