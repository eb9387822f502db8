-- The first of the newest actions that changed a head which their key does not have: an earlier action has it, or none.
SELECT changed.partition, changed.log_offset, changed.key
FROM (SELECT seq, partition, log_offset, key_hash, key, state FROM action ORDER BY seq DESC LIMIT ?) AS changed
LEFT JOIN latest ON latest.key_hash = changed.key_hash
LEFT JOIN action AS owner ON owner.seq = latest.seq
WHERE changed.state IS NOT NULL AND (latest.key_hash IS NULL OR (owner.key = changed.key AND owner.seq < changed.seq))
ORDER BY changed.seq LIMIT 1;
