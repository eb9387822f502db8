-- Become the one who changes the schema, if nobody is, or if who was has been at it for too long (µs).
INSERT INTO {schema}.{prefix}lock AS held (name, holder, taken)
VALUES ('schema', $1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, taken = excluded.taken
WHERE held.taken < excluded.taken - $2::bigint
RETURNING holder;
