-- So many numbers.
SELECT nextval('{schema}.work_{1}_number') FROM generate_series(1, $1::bigint);
