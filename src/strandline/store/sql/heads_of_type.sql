-- What was taken of the keys with a head, by slice, then by their bytes, after a place, up to a slice.
SELECT slice, key, delete_to, life FROM {schema}.metajournal
WHERE entity_type = $1 AND (slice, key) > ($2, $3) AND (slice, key) < ($4 + 1, '')
ORDER BY slice, key LIMIT $5;
