-- Entity types that have events: one seek in the index for each.
WITH RECURSIVE found (entity_type) AS (
    SELECT min(entity_type) FROM journal
    UNION ALL
    SELECT (SELECT min(entity_type) FROM journal WHERE entity_type > found.entity_type)
    FROM found WHERE found.entity_type IS NOT NULL
)
SELECT entity_type FROM found WHERE entity_type IS NOT NULL;
