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
