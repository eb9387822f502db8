-- Who stops in the middle of this transaction keeps its locks no longer than this (ms, the one element of an array).
SELECT set_config('idle_in_transaction_session_timeout', ($1::text[])[1], true);
