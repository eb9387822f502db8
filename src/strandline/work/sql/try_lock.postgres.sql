-- The same, or not at all.
SELECT pg_try_advisory_xact_lock($1::bigint);
