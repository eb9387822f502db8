-- One process at a time declares a journal or sees to the tables of a set.
SELECT pg_advisory_xact_lock($1::bigint);
