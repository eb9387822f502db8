-- Empty slot {2} of {1} as a whole.
TRUNCATE {schema}.work_{1}_entry_{2}, {schema}.work_{1}_order_{2}, {schema}.work_{1}_state_{2};
