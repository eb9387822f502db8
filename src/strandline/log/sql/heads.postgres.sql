-- The server's clock (µs), in a row without a digest, and the states of these keys. After the partitions are held: a
-- statement of its own sees what the last holder committed.
SELECT NULL::bytea, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text
UNION ALL
SELECT key_digest, state FROM {schema}.log_head WHERE key_digest = ANY($1::bytea[]);
