-- Keys with a head, by slice, then by their bytes, within slices.
SELECT key FROM metajournal
WHERE entity_type = ? AND (slice, key) > (?, ?) AND (slice, key) < (?, ?)
ORDER BY slice, key LIMIT ?;
