-- Records of one key, no more than these bytes of value (the first passes), and of the same moment: how far the partition
-- was trimmed, its newest offset, and how many records there are before bytes are counted.
SELECT held.trimmed, held.newest, sized.*
FROM {schema}.log_partition AS held
LEFT JOIN LATERAL (
    SELECT count(*) OVER () AS there, found.*, sum(octet_length(value)) OVER (ORDER BY log_offset) AS size,
        row_number() OVER (ORDER BY log_offset) AS nr
    FROM (
        SELECT partition, log_offset, timestamp, key, header, CASE WHEN $5::boolean THEN value END AS value, life, first,
            last
        FROM {schema}.log_action
        WHERE key_hash = $7 AND key = $8 AND partition = $1 AND log_offset > $2 AND log_offset <= $3
        ORDER BY log_offset LIMIT $4
    ) AS found
) AS sized ON sized.nr = 1 OR coalesce(sized.size, 0) <= $6::bigint
WHERE held.partition = $1
ORDER BY sized.log_offset;
