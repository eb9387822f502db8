-- Remove the rows of a life from the views of all tags.
DELETE FROM {schema}.tag_view WHERE key = $1 AND life = $2;
