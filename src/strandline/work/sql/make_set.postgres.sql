-- The tables of a set, like the template's, each cut into the later table (slot 0) and a ring. {1} is its name, {2} the
-- first of its numbers, {3} the last.
DO $$ BEGIN
CREATE SEQUENCE {schema}.work_{1}_number AS bigint MINVALUE {2} MAXVALUE {3} START {2};
CREATE TABLE {schema}.work_{1}_entry (LIKE {schema}.work_template_entry INCLUDING ALL) PARTITION BY LIST (slot);
CREATE TABLE {schema}.work_{1}_order (LIKE {schema}.work_template_order INCLUDING ALL) PARTITION BY LIST (slot);
CREATE TABLE {schema}.work_{1}_state (LIKE {schema}.work_template_state INCLUDING ALL) PARTITION BY LIST (slot);
EXECUTE 'CREATE VIEW {schema}.work_{1}_whole AS '
  || replace(pg_get_viewdef('{schema}.work_template_whole'::regclass), 'work_template_', 'work_{1}_');
END $$;
