-- Keep other adds of these keys waiting: $1 is the journal's lock, which an add of many keys takes alone.
SELECT pg_advisory_xact_lock_shared($1::bigint), (SELECT count(pg_advisory_xact_lock(k)) FROM unnest($2::bigint[]) AS k);
