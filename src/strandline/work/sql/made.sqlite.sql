-- Each table that was made for a set, and what it is made like.
SELECT 'work_' || s.name || '_' || k.column1, 'work_template_' || k.column1
FROM work_set AS s CROSS JOIN (VALUES ('entry'), ('order'), ('state')) AS k;
