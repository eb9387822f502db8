-- Whether a table is there.

-- name: has_table
-- Whether a table is there.
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1;
