-- End a claim that nobody else has ended.
DELETE FROM work_{1}_state WHERE id = $1 AND fence = $2 AND slot = $3 AND status = 'P' RETURNING id;
