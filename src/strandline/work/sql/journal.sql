-- A journal by its name.
SELECT j.number, j.name, j.set_name, j.journal_id, j.settings, j.settings_version, s.settings, s.number
FROM {schema}.work_journal j JOIN {schema}.work_set s ON s.name = j.set_name WHERE j.name = $1::text;
