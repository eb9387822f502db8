-- The holder of this fence lives.
UPDATE {schema}.lease SET beat = beat + 1, beaten = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
WHERE name = $1 AND fence = $2 AND holder IS NOT NULL;
