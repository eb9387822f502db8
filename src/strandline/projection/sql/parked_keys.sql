-- The keys that wait.
SELECT slice, key, life, seq_nr, timestamp, parked
FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND parked IS NOT NULL
ORDER BY key;
