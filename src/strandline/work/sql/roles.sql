-- Who may do what on the tables of work journals.

-- name: roles (postgres)
-- Work: its tables are made and dropped while it runs, which only their owner may. So the user of those who add and work
-- owns them, in a schema apart (work=…?schema=…); others look.
GRANT USAGE ON SCHEMA {schema} TO {read};
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {read};
ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT ON TABLES TO {read};
COMMIT;
