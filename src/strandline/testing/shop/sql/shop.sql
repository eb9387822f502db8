-- What the checker of the shop reads.

-- name: stored_events
-- Every event that the store holds, whatever its life.
SELECT key, seq_nr, life, body FROM journal

-- name: stored_keys
-- Every key that has a head.
SELECT key FROM metajournal
