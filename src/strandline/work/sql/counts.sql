-- How many entries there are: due, later, behind, running; dead letters, unacknowledged ones; the oldest due date; whether
-- the journal is paused.
SELECT
  (SELECT count(*) FROM {schema}.work_{1}_order WHERE journal = $1::bigint AND place IN (0, 1) AND date <= $2::bigint
    AND (expiration_date = 0 OR expiration_date >= $2))
  + (SELECT count(*) FROM {schema}.work_{1}_state WHERE journal = $1 AND status = 'P' AND $3::bigint - beat > lease),
  (SELECT count(*) FROM {schema}.work_{1}_order WHERE journal = $1 AND place = 1 AND date > $2),
  (SELECT count(*) FROM {schema}.work_{1}_order WHERE journal = $1 AND place = 2
    AND (expiration_date = 0 OR expiration_date >= $2)),
  (SELECT count(*) FROM {schema}.work_{1}_state WHERE journal = $1 AND status = 'P' AND $3 - beat <= lease),
  (SELECT count(*) FROM {schema}.work_dead WHERE journal = $1),
  (SELECT count(*) FROM {schema}.work_dead WHERE journal = $1 AND NOT acknowledged),
  (SELECT min(date) FROM {schema}.work_{1}_order WHERE journal = $1 AND place IN (0, 1) AND date <= $2
    AND (expiration_date = 0 OR expiration_date >= $2)),
  (SELECT paused FROM {schema}.work_journal WHERE number = $1);
