-- $1 identity, $2 history_id, $3 stream
INSERT INTO {schema}.strandline_target (identity, history_id, stream, fence, version) VALUES ($1, $2, $3, 0, 1)
ON CONFLICT DO NOTHING
