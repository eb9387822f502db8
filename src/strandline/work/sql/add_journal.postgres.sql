-- Keep a new journal.
INSERT INTO {schema}.work_journal (number, name, set_name, journal_id, settings, settings_version)
SELECT coalesce(max(number), 0) + 1, $1::text, $2::text, $3::text, $4::text, 1 FROM {schema}.work_journal;
