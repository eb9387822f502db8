-- A closed table was emptied.
UPDATE {schema}.work_table SET state = 'empty' WHERE set_name = $1::text AND slot = $2::bigint;
