-- The bytes of a table.
SELECT pg_total_relation_size('{schema}.work_{1}_entry_{2}') + pg_total_relation_size('{schema}.work_{1}_order_{2}')
  + pg_total_relation_size('{schema}.work_{1}_state_{2}');
