-- All stamps.
SELECT name FROM {schema}.stamp_mark ORDER BY name;
