-- Remove a dead letter that is to wait again.
DELETE FROM {schema}.work_dead WHERE journal = $1::bigint AND dead_id = $2::bigint
RETURNING key, hash, data, version, priority, revised_date, expiration_date, number;
