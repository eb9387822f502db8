-- A closed table was removed.
DELETE FROM {schema}.work_table WHERE set_name = $1::text AND slot = $2::bigint;
