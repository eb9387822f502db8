-- The rows of many keys.
SELECT o.key, o.life, o.seq_nr, o.timestamp, o.parked
FROM unnest($3::bigint[], $4::text[]) AS wanted (slice, key)
JOIN {schema}.projection_offset AS o
    ON o.projection = $1::text AND o.epoch = $2::bigint AND o.slice = wanted.slice AND o.key = wanted.key;
