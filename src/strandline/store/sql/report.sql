-- Partitions that fail and why, as JSON, from the holder of this fence.
UPDATE lease SET errors = ? WHERE name = 'pipeline' AND fence = ?;
