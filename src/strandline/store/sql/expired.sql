-- Keys that may be purged, by when they expired.
SELECT expire_at, key, log_offset FROM {schema}.metajournal
WHERE expire_at IS NOT NULL AND (expire_at, key) > ($1, $2) AND expire_at <= $3
ORDER BY expire_at, key LIMIT $4;
