-- All who use this database.
SELECT identity, history_id, stream, fence, owner, version FROM {schema}.strandline_target ORDER BY history_id, stream
