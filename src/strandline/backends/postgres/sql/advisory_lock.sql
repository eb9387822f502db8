-- Wait until nobody else changes the schema; the end of the transaction frees it.
SELECT pg_advisory_xact_lock($1::bigint);
