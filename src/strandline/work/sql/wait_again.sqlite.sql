-- A claim that ended otherwise than by done.
UPDATE work_{1}_state SET status = $2, counter = $3, retry_date = $4 WHERE id = $1;
