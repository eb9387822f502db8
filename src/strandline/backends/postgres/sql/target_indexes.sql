-- Unique indexes: whether it is the key's, and its columns in their order (NULL: an expression). $1 oid
SELECT index.indisprimary, array_agg(attribute.attname ORDER BY part.place)
FROM pg_catalog.pg_index AS index
CROSS JOIN LATERAL unnest(index.indkey::int[]) WITH ORDINALITY AS part (number, place)
LEFT JOIN pg_catalog.pg_attribute AS attribute
    ON attribute.attrelid = index.indrelid AND attribute.attnum = part.number AND part.number > 0
WHERE index.indrelid = $1::oid AND index.indisunique AND part.place <= index.indnkeyatts
GROUP BY index.indexrelid, index.indisprimary
