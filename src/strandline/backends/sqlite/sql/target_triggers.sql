-- $1 table
SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = $1 COLLATE NOCASE ORDER BY name
