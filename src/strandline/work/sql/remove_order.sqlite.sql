-- Take an entry out of the order.
DELETE FROM work_{1}_order WHERE journal = $1 AND place = $2 AND priority = $3 AND date = $4 AND id = $5;
