-- What tells these tables from all others, and how isolated the transaction is that asks.
SELECT value, current_setting('transaction_isolation') FROM {schema}.{prefix}setting WHERE name = 'database_id';
