-- Fence, holder, start and beat of the lease, and for how long the beat has been still (µs).
SELECT fence, holder, since, beat, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - beaten
FROM {schema}.lease WHERE name = $1;
