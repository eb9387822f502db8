-- What the caller's transaction sees of others.
SELECT current_setting('transaction_isolation');
