-- Remove dead letters that are older than they are kept.
DELETE FROM {schema}.work_dead WHERE journal = $1::bigint AND date < $2::bigint;
