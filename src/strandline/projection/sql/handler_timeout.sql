-- A session that a handler leaves idle in its transaction ends after so many milliseconds, and its locks with it.
SELECT set_config('idle_in_transaction_session_timeout', $1::text, true);
