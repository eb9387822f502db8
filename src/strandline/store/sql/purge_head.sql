-- Remove a head.
DELETE FROM metajournal WHERE entity_type = ? AND slice = ? AND key = ?;
