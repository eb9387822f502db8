-- Nobody changes the schema any more.
DELETE FROM {schema}.{prefix}lock WHERE name = 'schema' AND holder = $1;
