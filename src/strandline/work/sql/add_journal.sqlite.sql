-- Keep a new journal.
INSERT INTO work_journal (number, name, set_name, journal_id, settings, settings_version, paused, wakes)
SELECT coalesce(max(number), 0) + 1, $1, $2, $3, $4, 1, NULL, 0 FROM work_journal;
