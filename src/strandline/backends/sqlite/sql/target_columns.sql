-- Columns in their order: name, type, place in the key, whether it is computed. $1 table
SELECT name, type, pk, hidden IN (2, 3) FROM pragma_table_xinfo($1) WHERE hidden <> 1 ORDER BY cid
