-- What is claimed in a table, as far as nobody is at it.
SELECT id FROM {schema}.work_{1}_state WHERE slot = $1::bigint AND status = 'P' LIMIT $2::bigint FOR UPDATE SKIP LOCKED;
