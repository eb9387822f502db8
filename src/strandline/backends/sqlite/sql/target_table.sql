-- A table or view by its name, which SQLite takes in any case. $1 name
SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND name = $1 COLLATE NOCASE
