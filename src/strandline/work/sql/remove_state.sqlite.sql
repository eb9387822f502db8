-- Remove what claims left behind.
DELETE FROM work_{1}_state WHERE slot = $1 AND id = $2;
