-- The columns of all tables: a step that was skipped or half undone by hand shows here.
SELECT table_name::text, column_name::text, data_type::text, is_nullable = 'YES'
FROM information_schema.columns WHERE table_schema = $1;
