-- Sets of short-lived tables; a set's numbers (ids, fences, data) come from a range of its own.
CREATE TABLE work_set (
  name TEXT NOT NULL PRIMARY KEY,
  number INTEGER NOT NULL,
  settings TEXT NOT NULL,
  next_number INTEGER NOT NULL,
  boot TEXT NOT NULL
) WITHOUT ROWID;
-- The tables of each set: which one is current, which wait to be emptied.
CREATE TABLE work_table (
  set_name TEXT NOT NULL,
  slot INTEGER NOT NULL,
  state TEXT NOT NULL,
  opened_date INTEGER NOT NULL,
  closed_date INTEGER NOT NULL,
  first_number INTEGER NOT NULL,
  last_number INTEGER NOT NULL,
  PRIMARY KEY (set_name, slot)
) WITHOUT ROWID;
-- Work journals, with their settings as they were declared last.
CREATE TABLE work_journal (
  number INTEGER NOT NULL PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  set_name TEXT NOT NULL,
  journal_id TEXT NOT NULL,
  settings TEXT NOT NULL,
  settings_version INTEGER NOT NULL,
  paused TEXT,
  wakes INTEGER NOT NULL
);
-- The columns that a journal was ever declared with.
CREATE TABLE work_version (
  journal INTEGER NOT NULL,
  version INTEGER NOT NULL,
  columns TEXT NOT NULL,
  PRIMARY KEY (journal, version)
) WITHOUT ROWID;
-- Entries that failed too often, or could not be read.
CREATE TABLE work_dead (
  journal INTEGER NOT NULL,
  dead_id INTEGER NOT NULL,
  id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  hash BLOB NOT NULL,
  key BLOB NOT NULL,
  data BLOB NOT NULL,
  version INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  insertion_date INTEGER NOT NULL,
  revised_date INTEGER NOT NULL,
  expiration_date INTEGER NOT NULL,
  counter INTEGER NOT NULL,
  reason TEXT NOT NULL,
  owner TEXT NOT NULL,
  date INTEGER NOT NULL,
  acknowledged INTEGER NOT NULL,
  PRIMARY KEY (journal, dead_id)
);
