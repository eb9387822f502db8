-- The same, but no more bytes of value than these; the first passes.
SELECT partition, log_offset, timestamp, key, header, value, life, first, last
FROM (
    SELECT found.*,
        sum(octet_length(value)) OVER (ORDER BY log_offset) AS size, row_number() OVER (ORDER BY log_offset) AS nr
    FROM (
        SELECT partition, log_offset, timestamp, key, header, CASE WHEN $5::boolean THEN value END AS value, life, first,
            last
        FROM {schema}.log_action
        WHERE partition = $1 AND log_offset > $2 AND log_offset <= $3
        ORDER BY log_offset LIMIT $4
    ) AS found
) AS sized
WHERE nr = 1 OR coalesce(size, 0) <= $6::bigint
ORDER BY log_offset;
