-- The data of an entry.
SELECT id, data FROM work_{1}_entry WHERE id = $1;
