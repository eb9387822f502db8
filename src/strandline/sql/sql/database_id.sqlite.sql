-- What tells these tables from all others; of the file itself, not of one that is attached to it.
SELECT value FROM main.{prefix}setting WHERE name = 'database_id';
