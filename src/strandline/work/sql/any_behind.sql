-- Whether any entry of the journal waits behind another.
SELECT 1 FROM {schema}.work_{1}_order WHERE journal = $1::bigint AND place = 2 LIMIT 1;
