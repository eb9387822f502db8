-- Whether a schema is there: making one that is there needs rights that using it does not.
SELECT 1 FROM information_schema.schemata WHERE schema_name = $1;
