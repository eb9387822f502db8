-- The last events of a life first. Both bounds are places in the primary key, so this seeks, too.
-- A body larger than that is left out, its size is given for its digest: a page of them may be larger than memory.
SELECT seq_nr, prev_seq_nr, CASE WHEN octet_length(body) <= $8::bigint THEN body END,
    CASE WHEN octet_length(body) <= $8::bigint THEN digest ELSE octet_length(body) END
FROM {schema}.journal
WHERE key = $1::text AND life = $2::bigint
    AND (segment, seq_nr) >= ($3::bigint, $4::bigint) AND (segment, seq_nr) <= ($5::bigint, $6::bigint)
ORDER BY segment DESC, seq_nr DESC LIMIT $7::bigint;
