-- Wake whoever listens on a channel (the one element of an array). It writes nothing, so nothing is synced.
SELECT pg_notify(($1::text[])[1], '');
