-- A database of a user as a target of event groups: its tables as they are declared.

-- name: target_columns
-- Columns in their order: name, type, whether it is computed, given by the server, given by it always, compared by a
-- loose collation. $1 oid
SELECT attribute.attname, pg_catalog.format_type(attribute.atttypid, attribute.atttypmod), attribute.attgenerated <> '',
       attribute.attidentity <> '', attribute.attidentity = 'a',
       CASE WHEN rule.collisdeterministic THEN '' ELSE rule.collname END
FROM pg_catalog.pg_attribute AS attribute
LEFT JOIN pg_catalog.pg_collation AS rule ON rule.oid = attribute.attcollation
WHERE attribute.attrelid = $1::oid AND attribute.attnum > 0 AND NOT attribute.attisdropped
ORDER BY attribute.attnum

-- name: target_foreign
-- Foreign keys from or to a table or one of its partitions: whether it is the child, the parent; child, its columns, parent,
-- its columns, what happens on delete and update. $1 oid
WITH family AS (SELECT $1::oid AS part UNION SELECT relid FROM pg_catalog.pg_partition_tree($1::oid))
SELECT key.conrelid IN (TABLE family), key.confrelid IN (TABLE family), child_schema.nspname || '.' || child.relname,
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
WHERE key.contype = 'f' AND (key.conrelid = $1::oid OR key.confrelid = $1::oid
    OR (key.conparentid = 0 AND (key.conrelid IN (TABLE family) OR key.confrelid IN (TABLE family))))
ORDER BY key.conname

-- name: target_indexes
-- Unique indexes and exclusion constraints, also those of one partition alone: whether it is the key's, its columns in
-- their order (NULL: an expression), and its definition, if it rests on more than these columns. $1 oid
SELECT index.indisprimary, array_agg(attribute.attname ORDER BY part.place),
       CASE WHEN index.indpred IS NOT NULL OR index.indexprs IS NOT NULL
            THEN pg_catalog.pg_get_indexdef(index.indexrelid) END
FROM pg_catalog.pg_index AS index
CROSS JOIN LATERAL unnest(index.indkey::int[]) WITH ORDINALITY AS part (number, place)
LEFT JOIN pg_catalog.pg_attribute AS attribute
    ON attribute.attrelid = index.indrelid AND attribute.attnum = part.number AND part.number > 0
JOIN pg_catalog.pg_class AS made ON made.oid = index.indexrelid
WHERE (index.indrelid = $1::oid
       OR (NOT made.relispartition AND index.indrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree($1::oid))))
  AND (index.indisunique OR index.indisexclusion) AND part.place <= index.indnkeyatts
GROUP BY index.indexrelid, index.indisprimary, index.indpred IS NOT NULL OR index.indexprs IS NOT NULL
ORDER BY index.indexrelid

-- name: target_settings
-- For one transaction: its idle time (ms), and the forms in which images are compared. $1 idle (ms)
SELECT set_config('idle_in_transaction_session_timeout', $1, true),
       set_config('datestyle', 'ISO', true), set_config('intervalstyle', 'postgres', true),
       set_config('bytea_output', 'hex', true), set_config('extra_float_digits', '1', true)

-- name: target_state
-- What changes whenever a table is declared anew: which versions of rows of the catalogue it is made of. Foreign keys, from
-- it and to it, are triggers there. $1 name
SELECT concat_ws(' ', found.oid, found.xmin,
    (SELECT string_agg(part.xmin::text, ',' ORDER BY part.attnum)
     FROM pg_catalog.pg_attribute AS part WHERE part.attrelid = found.oid AND part.attnum > 0),
    (SELECT string_agg(part.indexrelid || ':' || part.xmin, ',' ORDER BY part.indexrelid)
     FROM pg_catalog.pg_index AS part WHERE part.indrelid = found.oid),
    (SELECT string_agg(part.oid || ':' || part.xmin, ',' ORDER BY part.oid)
     FROM pg_catalog.pg_trigger AS part WHERE part.tgrelid = found.oid),
    (SELECT string_agg(part.oid || ':' || part.xmin, ',' ORDER BY part.oid) FROM pg_catalog.pg_trigger AS part
     WHERE found.relkind = 'p' AND part.tgrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree(found.oid))),
    (SELECT string_agg(part.oid || ':' || part.xmin, ',' ORDER BY part.oid)
     FROM pg_catalog.pg_rewrite AS part WHERE part.ev_class = found.oid))
FROM pg_catalog.pg_class AS found WHERE found.oid = pg_catalog.to_regclass($1)::oid

-- name: target_table
-- A table by the name that a statement gives it, found as the server finds it: oid, schema, name, whether it is no view,
-- whether other tables inherit from it, whether it inherits, and (schema, name) of what it is a partition of. $1 name
SELECT found.oid, schema.nspname, found.relname, found.relkind IN ('r', 'p'), found.relkind = 'r' AND found.relhassubclass,
       NOT found.relispartition AND EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhrelid = found.oid),
       (SELECT part_schema.nspname || '.' || root.relname
        FROM pg_catalog.pg_class AS root JOIN pg_catalog.pg_namespace AS part_schema ON part_schema.oid = root.relnamespace
        WHERE found.relispartition AND root.oid = pg_catalog.pg_partition_root(found.oid))
FROM pg_catalog.pg_class AS found JOIN pg_catalog.pg_namespace AS schema ON schema.oid = found.relnamespace
WHERE found.oid = pg_catalog.to_regclass($1)::oid AND found.relkind IN ('r', 'p', 'v', 'm', 'f')

-- name: target_triggers
-- Triggers and rules of a table, and triggers of its partitions. $1 oid
SELECT 'trigger', tgname FROM pg_catalog.pg_trigger
WHERE NOT tgisinternal AND tgenabled <> 'D'
  AND (tgrelid = $1::oid OR tgrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree($1::oid)))
UNION
SELECT 'rule', rulename FROM pg_catalog.pg_rewrite WHERE ev_class = $1::oid AND rulename <> '_RETURN'
ORDER BY 1, 2

-- name: target_zone
-- For one transaction: the time zone in which images were taken. $1 zone
SELECT set_config('timezone', $1, true)
