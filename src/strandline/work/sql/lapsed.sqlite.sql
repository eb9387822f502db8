-- Claims whose lease is to be looked at by now, the oldest first.
SELECT id FROM work_{1}_state WHERE journal = $1 AND status = 'P' AND look_at <= $2 ORDER BY look_at LIMIT $3;
