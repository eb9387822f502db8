-- The roles that share a journal. They log in nobody: a user is made a member of one or more.

-- name: roles
-- Who may do what on a journal, part by part: give this to psql as the owner of the tables, who may make roles. It may be
-- repeated, and is after each upgrade of the schema. Then, for each user:
--     CREATE USER shop PASSWORD '…'; GRANT {append} TO shop;
BEGIN;
DO $roles$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        '{role_prefix}append', '{role_prefix}delete', '{role_prefix}pipeline', '{role_prefix}project', '{role_prefix}read'
    ] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        END IF;
    END LOOP;
END $roles$;
-- The pipeline records too: Marks, and the Purge of a key that expired.
GRANT {read} TO {append}, {delete}, {pipeline}, {project};
GRANT {delete} TO {pipeline};
