-- An entry whose claim was ended by done.
DELETE FROM work_{1}_entry WHERE id = $1 RETURNING id, hash, key;
