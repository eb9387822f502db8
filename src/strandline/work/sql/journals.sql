-- The names of all journals.
SELECT name FROM {schema}.work_journal ORDER BY name;
