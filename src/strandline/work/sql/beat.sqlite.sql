-- A heartbeat: $1 is now, $2 is now by the clock of leases.
UPDATE work_{1}_state SET start_date = $1, beat = $2
WHERE id = $3 AND fence = $4 AND status = 'P' AND $2 - beat <= lease RETURNING id;
