-- Keys with a head, by slice, then by their bytes, within slices.
SELECT key FROM {schema}.metajournal
WHERE entity_type = $1 AND (slice, key) > ($2, $3) AND (slice, key) < ($4, $5)
ORDER BY slice, key LIMIT $6;
