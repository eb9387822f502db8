-- Copies of a file, and its damages.

-- name: damage
-- What is wrong with pages, indexes and rows of the file: a hundred lines at most, or "ok".
PRAGMA integrity_check;

-- name: look_once
-- Anything: from then on a transaction sees one moment.
SELECT count(*) FROM sqlite_schema;
