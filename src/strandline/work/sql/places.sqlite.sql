-- Whether this place in the order is taken.
SELECT id, place FROM work_{1}_order WHERE journal = $1 AND place = $2 AND priority = $3 AND date = $4 AND id = $5;
