-- Work journals by name, their settings, and what a transaction first looks at.

-- name: add_journal (postgres)
-- Keep a new journal.
INSERT INTO {schema}.work_journal (number, name, set_name, journal_id, settings, settings_version)
SELECT coalesce(max(number), 0) + 1, $1::text, $2::text, $3::text, $4::text, 1 FROM {schema}.work_journal;

-- name: add_journal (sqlite)
INSERT INTO work_journal (number, name, set_name, journal_id, settings, settings_version, paused, wakes)
SELECT coalesce(max(number), 0) + 1, $1, $2, $3, $4, 1, NULL, 0 FROM work_journal;

-- name: change_settings
-- Other settings for a journal.
UPDATE {schema}.work_journal SET settings = $2::text, settings_version = settings_version + 1 WHERE number = $1::bigint;

-- name: journal
-- A journal by its name.
SELECT j.number, j.name, j.set_name, j.journal_id, j.settings, j.settings_version, s.settings, s.number
FROM {schema}.work_journal j JOIN {schema}.work_set s ON s.name = j.set_name WHERE j.name = $1::text;

-- name: journals
-- The names of all journals.
SELECT name FROM {schema}.work_journal ORDER BY name;

-- name: look (postgres)
-- The moment, what was changed in the journal, the current table, and so many numbers; $3 is a clock of the caller's, or 0.
SELECT CASE WHEN $3::bigint > 0 THEN $3 ELSE (extract(epoch FROM clock_timestamp()) * 1000000)::bigint END,
  j.settings_version, j.paused, t.slot, t.opened_date, t.first_number, (SELECT last_value FROM {schema}.work_{1}_number),
  ARRAY(SELECT nextval('{schema}.work_{1}_number') FROM generate_series(1, $4::bigint))
FROM {schema}.work_journal j JOIN {schema}.work_table t ON t.set_name = $2::text AND t.state = 'current'
WHERE j.number = $1::bigint;

-- name: look (sqlite)
-- What was changed in the journal, the current table, and the last number drawn; $3 is the caller's clock.
SELECT $3, j.settings_version, j.paused, t.slot, t.opened_date, t.first_number, s.next_number - 1, $4, s.boot
FROM work_journal j JOIN work_table t ON t.set_name = $2 AND t.state = 'current' JOIN work_set s ON s.name = $2
WHERE j.number = $1;

-- name: look_claim (postgres)
-- For a claim: the moment, what was changed in the journal, the current table, so many numbers, and the
-- first dates at which an entry was ready or a lease was to be looked at, if they have come; $3 is a clock of the caller's,
-- or 0. What comes later is not looked for: what was claimed and done lies before it, dead, for as long as somebody holds
-- an old snapshot.
SELECT CASE WHEN $3::bigint > 0 THEN $3 ELSE (extract(epoch FROM clock_timestamp()) * 1000000)::bigint END,
  j.settings_version, j.paused, t.slot, t.opened_date, t.first_number, (SELECT last_value FROM {schema}.work_{1}_number),
  ARRAY(SELECT nextval('{schema}.work_{1}_number') FROM generate_series(1, $4::bigint)),
  (SELECT min(date) FROM (SELECT date FROM {schema}.work_{1}_order
    WHERE journal = $1::bigint AND place = 1 AND priority = 0 AND date <= CASE WHEN $3::bigint > 0 THEN $3
      ELSE (extract(epoch FROM statement_timestamp()) * 1000000)::bigint END ORDER BY priority, date, id LIMIT 1) AS o),
  (SELECT min(look_at) FROM (SELECT look_at FROM {schema}.work_{1}_state
    WHERE journal = $1::bigint AND status = 'P' AND look_at <= CASE WHEN $3::bigint > 0 THEN $3
      ELSE (extract(epoch FROM statement_timestamp()) * 1000000)::bigint END ORDER BY look_at LIMIT 1) AS l)
FROM {schema}.work_journal j JOIN {schema}.work_table t ON t.set_name = $2::text AND t.state = 'current'
WHERE j.number = $1::bigint;

-- name: now (postgres)
-- The server's clock, unless the caller has one.
SELECT CASE WHEN $1::bigint > 0 THEN $1 ELSE (extract(epoch FROM clock_timestamp()) * 1000000)::bigint END;

-- name: pause
-- Pause a journal, or let it go on.
UPDATE {schema}.work_journal SET paused = $2::text WHERE number = $1::bigint;

-- name: touch_journals
-- Let every process that has a journal of this set open read its settings again.
UPDATE {schema}.work_journal SET settings_version = settings_version + 1 WHERE set_name = $1::text;

-- name: wake (sqlite)
-- Something may be claimable earlier than who waits thinks.
UPDATE work_journal SET wakes = wakes + 1 WHERE number = $1;

-- name: wakes (sqlite)
-- How often something became claimable.
SELECT wakes FROM work_journal WHERE number = $1;
