-- Lower the flag of a dead letter.
UPDATE {schema}.work_dead SET acknowledged = (1 = 1) WHERE journal = $1::bigint AND dead_id = $2::bigint;
