-- Open a table.
INSERT INTO {schema}.work_table (set_name, slot, state, opened_date, closed_date, first_number, last_number)
VALUES ($1::text, $2::bigint, 'current', $3::bigint, 0, $4::bigint, 0);
