-- Whether this user may make tables in a schema, or the schema itself if it is not there.
SELECT CASE WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1)
    THEN has_schema_privilege($1::text, 'CREATE')
    ELSE has_database_privilege(current_database(), 'CREATE')
END;
