-- The dead letter that an entry has become, the latest of them.
SELECT max(dead_id) FROM {schema}.work_dead WHERE journal = $1::bigint AND id = $2::bigint;
