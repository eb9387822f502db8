-- One moment for all statements; values have the forms that images are compared in. Times in ms.
BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE;
SET LOCAL statement_timeout = {statement_ms};
SET LOCAL idle_in_transaction_session_timeout = {idle_ms};
SET LOCAL datestyle = 'ISO';
SET LOCAL intervalstyle = 'postgres';
SET LOCAL bytea_output = 'hex';
SET LOCAL extra_float_digits = 1
