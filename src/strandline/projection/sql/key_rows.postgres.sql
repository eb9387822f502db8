-- Epoch and line of a projection, and the rows of those of many keys that have one, of one moment. Each is looked up by
-- itself: in a table without statistics PostgreSQL takes all rows of a projection for few, and reads them for every page.
SELECT p.epoch, p.line, o.its_key, o.life, o.seq_nr, o.timestamp, o.parked
FROM {schema}.projection AS p
LEFT JOIN (
    unnest($3::bigint[], $4::text[]) AS wanted (slice, key)
    CROSS JOIN LATERAL (
        SELECT o.key AS its_key, o.life, o.seq_nr, o.timestamp, o.parked
        FROM {schema}.projection_offset AS o
        WHERE o.projection = $1::text AND o.epoch = $2::bigint AND o.slice = wanted.slice AND o.key = wanted.key
        LIMIT 1
    ) AS o
) ON true
WHERE p.id = $1::text;
