-- A database of a user as a target of event groups: its tables as they are declared.

-- name: target_columns
-- Columns in their order: name, type, place in the key, whether it is computed. $1 table
SELECT name, type, pk, hidden IN (2, 3) FROM pragma_table_xinfo($1) WHERE hidden <> 1 ORDER BY cid

-- name: target_foreign
-- Foreign keys of all tables: child, number, column, parent, its column (NULL: its key), on delete, on update.
SELECT child.name, key.id, key."from", key."table", key."to", key.on_delete, key.on_update
FROM sqlite_schema AS child, pragma_foreign_key_list(child.name) AS key
WHERE child.type = 'table'
ORDER BY child.name, key.id, key.seq

-- name: target_indexes
-- Columns of unique indexes: index, whether it is the key's, its statement if it has one of its own, column (NULL: an
-- expression), collation. $1 table
SELECT list.name, list.origin = 'pk', made.sql, info.name, info.coll
FROM pragma_index_list($1) AS list, pragma_index_xinfo(list.name) AS info
LEFT JOIN sqlite_schema AS made ON made.type = 'index' AND made.name = list.name
WHERE list."unique" AND info.key
ORDER BY list.seq, info.seqno

-- name: target_state
-- What changes whenever anything is declared anew. $1 table (all are in one file)
SELECT schema_version, $1 FROM pragma_schema_version

-- name: target_table
-- A table or view by its name, which SQLite takes in any case, with its statement. $1 name
SELECT name, type, sql FROM sqlite_schema WHERE type IN ('table', 'view') AND name = $1 COLLATE NOCASE

-- name: target_triggers
-- $1 table
SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = $1 COLLATE NOCASE ORDER BY name
