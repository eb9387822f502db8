-- Remove an entry.
DELETE FROM work_{1}_entry WHERE slot = $1 AND id = $2;
