-- Forget how far a key is in the view of a tag.
DELETE FROM {schema}.tag_progress WHERE key = $1 AND life = $2 AND tag = $3;
