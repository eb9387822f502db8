-- Partitions that fail and why, as JSON, from the holder of this fence.
UPDATE {schema}.lease SET errors = $1 WHERE name = $2 AND fence = $3;
