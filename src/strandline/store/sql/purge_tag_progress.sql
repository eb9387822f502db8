-- Forget how far a life was in the views of tags.
DELETE FROM {schema}.tag_progress WHERE key = $1 AND life = $2;
