-- For one transaction: its times, and the forms in which images are compared. $1 statement (ms), $2 idle (ms)
SELECT set_config('statement_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true),
       set_config('datestyle', 'ISO', true), set_config('intervalstyle', 'postgres', true),
       set_config('bytea_output', 'hex', true), set_config('extra_float_digits', '1', true)
