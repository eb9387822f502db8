-- Columns in their order: name, type, whether it is computed, given by the server, compared by a loose collation. $1 oid
SELECT attribute.attname, pg_catalog.format_type(attribute.atttypid, attribute.atttypmod), attribute.attgenerated <> '',
       attribute.attidentity <> '', CASE WHEN rule.collisdeterministic THEN '' ELSE rule.collname END
FROM pg_catalog.pg_attribute AS attribute
LEFT JOIN pg_catalog.pg_collation AS rule ON rule.oid = attribute.attcollation
WHERE attribute.attrelid = $1::oid AND attribute.attnum > 0 AND NOT attribute.attisdropped
ORDER BY attribute.attnum
