-- Keys that may be purged, by when they expired.
SELECT expire_at, key, log_offset FROM metajournal
WHERE expire_at IS NOT NULL AND (expire_at, key) > (?, ?) AND expire_at <= ?
ORDER BY expire_at, key LIMIT ?;
