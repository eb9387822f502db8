-- $1 owner, $2 identity, $3 history_id, $4 stream
INSERT INTO {schema}.strandline_target (owner, identity, history_id, stream, fence, version)
VALUES ($1, $2, $3, $4, 0, 1)
