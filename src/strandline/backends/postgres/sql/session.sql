-- A session: its settings, its clock, its locks, and what the server is.

-- name: advisory_lock
-- Wait until nobody else changes the schema; the end of the transaction frees it.
SELECT pg_advisory_xact_lock($1::bigint);

-- name: generic_plans
-- Plan each statement once, whatever its values are, for this transaction.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true);

-- name: idle_timeout
-- Who stops in the middle of this transaction keeps its locks no longer than this (ms, the one element of an array).
SELECT set_config('idle_in_transaction_session_timeout', ($1::text[])[1], true);

-- name: listen
-- Be told what is rung on a channel.
LISTEN {channel};

-- name: now
-- The server's clock (µs).
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: one_moment
-- All statements of this transaction see what was committed before it.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;

-- name: ring
-- Wake whoever listens on a channel (the one element of an array). It writes nothing, so nothing is synced.
SELECT pg_notify(($1::text[])[1], '');

-- name: server
-- What a server says of itself.
SELECT version(), current_setting('server_version_num')::integer, pg_is_in_recovery();

-- name: server_settings
-- Those of some settings that the server has.
SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY($1::text[]);

-- name: session
-- The session that answers.
SELECT pg_backend_pid();
