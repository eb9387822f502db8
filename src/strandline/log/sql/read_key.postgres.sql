-- Records of one key up to the one that makes their values more than these bytes, each with the bytes up to it; and of the
-- same moment, how far the partition was trimmed and its newest offset.
SELECT held.trimmed, held.newest, sized.size, sized.partition, sized.log_offset, sized.timestamp, sized.key, sized.header,
    CASE WHEN $5::boolean THEN sized.value END, sized.life, sized.first, sized.last
FROM {schema}.log_partition AS held
LEFT JOIN LATERAL (
    SELECT partition, log_offset, timestamp, key, header, value, life, first, last,
        sum(octet_length(value)) OVER (ORDER BY log_offset ROWS UNBOUNDED PRECEDING) AS size
    FROM {schema}.log_action
    WHERE key_hash = $7::bigint AND key = $8::text AND partition = $1::integer
        AND log_offset > $2::bigint AND log_offset <= $3::bigint
    ORDER BY log_offset LIMIT $4::bigint
) AS sized ON coalesce(sized.size, 0) - coalesce(octet_length(sized.value), 0) <= $6::bigint
WHERE held.partition = $1::integer
ORDER BY sized.log_offset;
