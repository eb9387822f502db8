-- The first dates at which something happens: an entry is ready, one will be, a lease is to be looked at, one expires.
SELECT
  (SELECT min(priority) FROM (SELECT priority FROM {schema}.work_{1}_order
    WHERE journal = $1::bigint AND place = 0 AND (expiration_date = 0 OR expiration_date >= $2::bigint)
    ORDER BY priority, date, id LIMIT 1) AS r),
  (SELECT min(date) FROM (SELECT date FROM {schema}.work_{1}_order
    WHERE journal = $1 AND place = 1 ORDER BY priority, date, id LIMIT 1) AS t),
  (SELECT min(look_at) FROM (SELECT look_at FROM {schema}.work_{1}_state
    WHERE journal = $1 AND status = 'P' ORDER BY look_at LIMIT 1) AS u),
  (SELECT min(expiration_date) FROM (SELECT expiration_date FROM {schema}.work_{1}_entry
    WHERE journal = $1 AND expiration_date > 0 ORDER BY expiration_date LIMIT 1) AS v);
