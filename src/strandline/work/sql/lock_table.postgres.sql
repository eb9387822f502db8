-- Keep everybody from slot {2} of {1}, or give up after 20 ms, so that nobody queues behind us for longer.
DO $$ BEGIN
SET LOCAL lock_timeout = '20ms';
LOCK TABLE {schema}.work_{1}_entry_{2}, {schema}.work_{1}_order_{2}, {schema}.work_{1}_state_{2} IN ACCESS EXCLUSIVE MODE;
END $$;
