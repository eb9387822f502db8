-- Whether nothing is in slot {2} of {1}: asked under the lock, with a snapshot of its own.
SELECT NOT EXISTS (SELECT FROM {schema}.work_{1}_entry_{2});
