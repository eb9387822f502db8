-- When to look at a lease that heartbeats have moved.
UPDATE work_{1}_state SET look_at = $2 WHERE id = $1;
