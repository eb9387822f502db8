-- Plan each statement once, whatever its values are, for this transaction.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true);
