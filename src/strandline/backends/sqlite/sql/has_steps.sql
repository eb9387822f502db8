-- Whether the foundation is there.
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'schema_step';
