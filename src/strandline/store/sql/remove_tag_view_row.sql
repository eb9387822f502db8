-- Take a row out of a tag's view.
DELETE FROM {schema}.tag_view WHERE tag = $1 AND bucket = $2 AND timestamp = $3 AND key = $4 AND seq_nr = $5;
