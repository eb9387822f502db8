-- The actions of a partition, up to an offset, that have heads.
SELECT
    latest.key_hash, action.key, action.state, action.partition, action.log_offset, action.timestamp, action.first,
    action.last, action.header
FROM place
CROSS JOIN latest ON latest.key_hash = place.key_hash AND latest.seq = place.seq
CROSS JOIN action ON action.seq = place.seq
WHERE place.partition = :partition AND place.log_offset <= :to;
