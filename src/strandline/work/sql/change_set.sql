-- Other settings for a set of tables.
UPDATE {schema}.work_set SET settings = $2::text WHERE name = $1::text;
