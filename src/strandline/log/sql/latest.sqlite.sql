-- The actions that have the heads of these hashes (a JSON array); nothing but the hash where the head is elsewhere.
SELECT
    latest.key_hash, action.key, action.state, action.partition, action.log_offset, action.timestamp, action.first,
    action.last, action.header
FROM latest LEFT JOIN action ON action.seq = latest.seq
WHERE latest.key_hash IN (SELECT value FROM json_each(?));
