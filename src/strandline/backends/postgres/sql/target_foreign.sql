-- Foreign keys from or to a table: child, its columns, parent, its columns, what happens on delete and update. $1 oid
SELECT child_schema.nspname || '.' || child.relname,
       ARRAY(SELECT attname FROM unnest(key.conkey) WITH ORDINALITY AS part (number, place)
             JOIN pg_catalog.pg_attribute ON attrelid = key.conrelid AND attnum = part.number ORDER BY part.place),
       parent_schema.nspname || '.' || parent.relname,
       ARRAY(SELECT attname FROM unnest(key.confkey) WITH ORDINALITY AS part (number, place)
             JOIN pg_catalog.pg_attribute ON attrelid = key.confrelid AND attnum = part.number ORDER BY part.place),
       key.confdeltype IN ('c', 'n', 'd'), key.confupdtype IN ('c', 'n', 'd')
FROM pg_catalog.pg_constraint AS key
JOIN pg_catalog.pg_class AS child ON child.oid = key.conrelid
JOIN pg_catalog.pg_namespace AS child_schema ON child_schema.oid = child.relnamespace
JOIN pg_catalog.pg_class AS parent ON parent.oid = key.confrelid
JOIN pg_catalog.pg_namespace AS parent_schema ON parent_schema.oid = parent.relnamespace
WHERE key.contype = 'f' AND (key.conrelid = $1::oid OR key.confrelid = $1::oid)
ORDER BY key.conname
