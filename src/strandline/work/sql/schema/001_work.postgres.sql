-- Sets of short-lived tables; a set's numbers (ids, fences, data) come from a sequence of its own.
CREATE TABLE IF NOT EXISTS {schema}.work_set (
  name text NOT NULL,
  number bigint NOT NULL,
  settings text NOT NULL,
  PRIMARY KEY (name)
);
-- The tables of each set: which one is current, which wait to be emptied.
CREATE TABLE IF NOT EXISTS {schema}.work_table (
  set_name text NOT NULL,
  slot bigint NOT NULL,
  state text NOT NULL,
  opened_date bigint NOT NULL,
  closed_date bigint NOT NULL,
  first_number bigint NOT NULL,
  last_number bigint NOT NULL,
  PRIMARY KEY (set_name, slot)
);
-- Work journals, with their settings as they were declared last.
CREATE TABLE IF NOT EXISTS {schema}.work_journal (
  number bigint NOT NULL,
  name text NOT NULL,
  set_name text NOT NULL,
  journal_id text NOT NULL,
  settings text NOT NULL,
  settings_version bigint NOT NULL,
  paused text,
  PRIMARY KEY (number)
);
CREATE UNIQUE INDEX IF NOT EXISTS work_journal_name ON {schema}.work_journal (name);
-- The columns that a journal was ever declared with.
CREATE TABLE IF NOT EXISTS {schema}.work_version (
  journal bigint NOT NULL,
  version bigint NOT NULL,
  columns text NOT NULL,
  PRIMARY KEY (journal, version)
);
-- Entries that failed too often, or could not be read.
CREATE TABLE IF NOT EXISTS {schema}.work_dead (
  journal bigint NOT NULL,
  dead_id bigint NOT NULL,
  id bigint NOT NULL,
  number bigint NOT NULL,
  hash bytea NOT NULL,
  key bytea NOT NULL,
  data bytea NOT NULL,
  version bigint NOT NULL,
  priority bigint NOT NULL,
  insertion_date bigint NOT NULL,
  revised_date bigint NOT NULL,
  expiration_date bigint NOT NULL,
  counter bigint NOT NULL,
  reason text NOT NULL,
  owner text NOT NULL,
  date bigint NOT NULL,
  acknowledged boolean NOT NULL,
  PRIMARY KEY (journal, dead_id)
);
