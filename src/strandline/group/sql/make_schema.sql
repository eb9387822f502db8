-- Where our tables are in PostgreSQL.
CREATE SCHEMA IF NOT EXISTS {schema}
