-- Remove a head.
DELETE FROM {schema}.metajournal WHERE entity_type = $1 AND slice = $2 AND key = $3;
