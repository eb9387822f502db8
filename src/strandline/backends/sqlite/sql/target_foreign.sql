-- Foreign keys of all tables: child, number, column, parent, its column (NULL: its key), on delete, on update.
SELECT child.name, key.id, key."from", key."table", key."to", key.on_delete, key.on_update
FROM sqlite_schema AS child, pragma_foreign_key_list(child.name) AS key
WHERE child.type = 'table'
ORDER BY child.name, key.id, key.seq
