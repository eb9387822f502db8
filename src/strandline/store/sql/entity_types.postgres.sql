-- Entity types that have a head: one seek for each.
WITH RECURSIVE types (entity_type) AS (
    (SELECT entity_type FROM {schema}.metajournal ORDER BY entity_type LIMIT 1)
    UNION ALL
    SELECT (
        SELECT later.entity_type FROM {schema}.metajournal AS later WHERE later.entity_type > types.entity_type
        ORDER BY later.entity_type LIMIT 1
    )
    FROM types WHERE types.entity_type IS NOT NULL
)
SELECT entity_type FROM types WHERE entity_type IS NOT NULL;
