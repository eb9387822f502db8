-- Each table that was made for a set, and what it is made like.
SELECT 'work_' || t.set_name || '_' || k.kind || t.slot, 'work_template_' || k.kind
FROM (
  SELECT name AS set_name, '' AS slot FROM {schema}.work_set
  UNION ALL SELECT name, '_0' FROM {schema}.work_set
  UNION ALL SELECT set_name, '_' || slot FROM {schema}.work_table
) AS t CROSS JOIN (VALUES ('entry'), ('order'), ('state')) AS k (kind);
