-- What makes the tables of a set, like the template's: statements, in order. $1 is its name.
SELECT replace(sql, 'work_template_', 'work_' || $1::text || '_') FROM sqlite_schema
WHERE name GLOB 'work_template_*' AND sql IS NOT NULL ORDER BY rowid;
