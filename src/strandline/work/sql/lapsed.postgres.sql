-- Claims whose lease is to be looked at by now, the oldest first; those that somebody deals with are left out.
SELECT id FROM {schema}.work_{1}_state WHERE journal = $1::bigint AND status = 'P' AND look_at <= $2::bigint
ORDER BY look_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED;
