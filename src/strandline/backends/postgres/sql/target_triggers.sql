-- Triggers and rules of a table, and triggers of its partitions. $1 oid
SELECT tgname FROM pg_catalog.pg_trigger
WHERE NOT tgisinternal AND tgenabled <> 'D'
  AND (tgrelid = $1::oid OR tgrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree($1::oid)))
UNION
SELECT rulename FROM pg_catalog.pg_rewrite WHERE ev_class = $1::oid AND rulename <> '_RETURN'
ORDER BY 1
