-- Remove slot {2} of {1}.
DROP TABLE {schema}.work_{1}_entry_{2}, {schema}.work_{1}_order_{2}, {schema}.work_{1}_state_{2};
