-- Use a table that was emptied again, or go on with the one that is there.
UPDATE {schema}.work_table SET state = 'current', opened_date = $3::bigint, closed_date = 0, first_number = $4::bigint
WHERE set_name = $1::text AND slot = $2::bigint;
