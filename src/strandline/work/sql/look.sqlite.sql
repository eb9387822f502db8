-- What was changed in the journal, the current table, and the last number drawn; $3 is the caller's clock.
SELECT $3, j.settings_version, j.paused, t.slot, t.opened_date, t.first_number, s.next_number - 1, $4, s.boot
FROM work_journal j JOIN work_table t ON t.set_name = $2 AND t.state = 'current' JOIN work_set s ON s.name = $2
WHERE j.number = $1;
