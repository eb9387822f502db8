-- Entity types that have a head, after one of them: one seek for each.
WITH RECURSIVE found (entity_type) AS (
    SELECT min(entity_type) FROM {schema}.metajournal WHERE entity_type > $1
    UNION ALL
    SELECT (SELECT min(entity_type) FROM {schema}.metajournal WHERE entity_type > found.entity_type)
    FROM found WHERE found.entity_type IS NOT NULL
)
SELECT entity_type FROM found WHERE entity_type IS NOT NULL LIMIT $2;
