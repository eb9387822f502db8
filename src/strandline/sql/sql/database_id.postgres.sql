-- What tells these tables from all others.
SELECT value FROM {schema}.{prefix}setting WHERE name = 'database_id';
