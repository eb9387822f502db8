-- Close the current table.
UPDATE {schema}.work_table SET state = 'closed', closed_date = $3::bigint, last_number = $4::bigint
WHERE set_name = $1::text AND slot = $2::bigint;
