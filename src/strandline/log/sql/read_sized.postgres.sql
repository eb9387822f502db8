-- The same with values, no more bytes of them than these; the first passes.
SELECT partition, log_offset, timestamp, key, header, value, life, first, last
FROM (
    SELECT partition, log_offset, timestamp, key, header, value, life, first, last,
        sum(octet_length(value)) OVER (ORDER BY log_offset ROWS UNBOUNDED PRECEDING) AS size
    FROM {schema}.log_action
    WHERE partition = $1 AND log_offset > $2 AND log_offset <= $3
) AS sized
WHERE coalesce(size, 0) <= $4::bigint OR size = octet_length(value)
ORDER BY log_offset;
