-- The columns of all tables: a step that was skipped or half undone by hand shows here.
SELECT t.name, c.name, c.type, c."notnull", c.pk
FROM sqlite_schema AS t JOIN pragma_table_xinfo(t.name) AS c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%'
ORDER BY t.name, c.cid;
