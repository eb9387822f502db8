-- The ledger of a set's tables.
SELECT slot, state, opened_date, closed_date, first_number, last_number FROM {schema}.work_table
WHERE set_name = $1::text ORDER BY slot;
