-- Forget a run of records.
DELETE FROM action WHERE place BETWEEN ? AND ?;
