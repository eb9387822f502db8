-- Waits for the steps under way, which read the row. $1 history_id, $2 stream, $3 fence
UPDATE {schema}.strandline_target SET fence = $3 WHERE history_id = $1 AND stream = $2 AND fence <= $3
