-- The session that answers.
SELECT pg_backend_pid();
