-- The holder of this fence lives.
UPDATE {schema}.lease SET beat = beat + 1, beaten = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
WHERE name = 'pipeline' AND fence = $1 AND holder IS NOT NULL;
