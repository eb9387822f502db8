-- Put an entry whose date has come where claims take it from.
UPDATE work_{1}_order SET place = 0, priority = (SELECT e.priority FROM work_{1}_entry e WHERE e.id = work_{1}_order.id)
WHERE $1 > 0 AND journal = $2 AND place = $3 AND priority = $4 AND $5 > 0 AND date = $6 AND id = $7;
