-- Columns of unique indexes: index, whether it is the key's, column (NULL: an expression), collation. $1 table
SELECT list.name, list.origin = 'pk', info.name, info.coll
FROM pragma_index_list($1) AS list, pragma_index_xinfo(list.name) AS info
WHERE list."unique" AND info.key
ORDER BY list.seq, info.seqno
