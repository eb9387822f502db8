-- The same for all entity types: of each the first events, one seek in the index for each type, and of these the first.
WITH RECURSIVE types (entity_type) AS (
    (SELECT entity_type FROM {schema}.journal ORDER BY entity_type LIMIT 1)
    UNION ALL
    SELECT (
        SELECT later.entity_type FROM {schema}.journal AS later WHERE later.entity_type > types.entity_type
        ORDER BY later.entity_type LIMIT 1
    )
    FROM types WHERE types.entity_type IS NOT NULL
)
SELECT found.* FROM types CROSS JOIN LATERAL (
    SELECT key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
    FROM {schema}.journal
    WHERE entity_type = types.entity_type AND partition = $1 AND slice >= $2 AND slice <= $3
        AND (timestamp, seq_nr) > ($4, $5) AND (timestamp, seq_nr) <= ($6, 9223372036854775807)
    ORDER BY timestamp, seq_nr LIMIT $7
) AS found
ORDER BY found.timestamp, found.seq_nr LIMIT $7;
