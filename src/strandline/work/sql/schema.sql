-- The tables of work journals.

-- step: 001_work
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
) {rowless};
-- The columns that a journal was ever declared with.
CREATE TABLE IF NOT EXISTS {schema}.work_version (
  journal bigint NOT NULL,
  version bigint NOT NULL,
  columns text NOT NULL,
  PRIMARY KEY (journal, version)
) {rowless};
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
-- Ids of adds that gave one, and the entry that each went to.
CREATE TABLE IF NOT EXISTS {schema}.work_added (
  journal bigint NOT NULL,
  id bytea NOT NULL,
  entry bigint NOT NULL,
  date bigint NOT NULL,
  PRIMARY KEY (journal, id)
) {rowless};
CREATE INDEX IF NOT EXISTS work_added_date ON {schema}.work_added (journal, date);

-- step: 002_sets (postgres)
-- Sets of short-lived tables; a set's numbers (ids, fences, data) come from a sequence of its own.
CREATE TABLE IF NOT EXISTS {schema}.work_set (
  name text NOT NULL,
  number bigint NOT NULL,
  settings text NOT NULL,
  PRIMARY KEY (name)
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
-- What the tables of every set are made like, and compared with at each start: entries, written once; the order of those
-- that wait; what claims change; and all of it together. In a set each is cut into the later table (slot 0) and a ring.
CREATE TABLE IF NOT EXISTS {schema}.work_template_entry (
  slot bigint NOT NULL,
  id bigint NOT NULL,
  journal bigint NOT NULL,
  number bigint NOT NULL,
  version bigint NOT NULL,
  priority bigint NOT NULL,
  process_date bigint NOT NULL,
  insertion_date bigint NOT NULL,
  revised_date bigint NOT NULL,
  expiration_date bigint NOT NULL,
  first_start bigint NOT NULL,
  hash bytea NOT NULL,
  key bytea NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (id, slot)
);
CREATE INDEX IF NOT EXISTS work_template_key ON {schema}.work_template_entry (journal, hash);
CREATE INDEX IF NOT EXISTS work_template_expiry ON {schema}.work_template_entry (journal, expiration_date) WHERE expiration_date > 0;
CREATE TABLE IF NOT EXISTS {schema}.work_template_order (
  slot bigint NOT NULL,
  journal bigint NOT NULL,
  place bigint NOT NULL,
  priority bigint NOT NULL,
  date bigint NOT NULL,
  id bigint NOT NULL,
  expiration_date bigint NOT NULL,
  size bigint NOT NULL,
  PRIMARY KEY (journal, place, priority, date, id, slot)
);
CREATE TABLE IF NOT EXISTS {schema}.work_template_state (
  slot bigint NOT NULL,
  id bigint NOT NULL,
  journal bigint NOT NULL,
  fence bigint NOT NULL,
  start_date bigint NOT NULL,
  claimed_date bigint NOT NULL,
  beat bigint NOT NULL,
  lease bigint NOT NULL,
  counter bigint NOT NULL,
  retry_date bigint NOT NULL,
  look_at bigint NOT NULL,
  status text NOT NULL,
  owner text NOT NULL,
  PRIMARY KEY (id, slot)
);
CREATE INDEX IF NOT EXISTS work_template_look ON {schema}.work_template_state (journal, look_at) WHERE status = 'P';
CREATE OR REPLACE VIEW {schema}.work_template_whole AS
SELECT e.slot, e.id, e.number, e.hash, e.key, e.version, e.priority, e.process_date, e.insertion_date, e.revised_date,
  e.expiration_date, e.first_start, octet_length(e.data)::bigint AS size, coalesce(s.status, 'W') AS status, coalesce(s.fence, 0) AS fence,
  coalesce(s.owner, '') AS owner, coalesce(s.start_date, 0) AS start_date,
  coalesce(s.claimed_date, 0) AS claimed_date, coalesce(s.beat, 0) AS beat, coalesce(s.lease, 0) AS lease,
  coalesce(s.counter, 0) AS counter, coalesce(s.retry_date, 0) AS retry_date, e.journal
FROM {schema}.work_template_entry e LEFT JOIN {schema}.work_template_state s ON s.id = e.id AND s.slot = e.slot;

-- step: 002_sets (sqlite)
-- Sets of short-lived tables; a set's numbers (ids, fences, data) come from a range of its own.
CREATE TABLE work_set (
  name TEXT NOT NULL PRIMARY KEY,
  number INTEGER NOT NULL,
  settings TEXT NOT NULL,
  next_number INTEGER NOT NULL,
  boot TEXT NOT NULL
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
-- What the tables of every set are made like, and compared with at each start: entries, written once; the order of those
-- that wait; what claims change; and all of it together.
CREATE TABLE work_template_entry (
  id INTEGER NOT NULL PRIMARY KEY,
  slot INTEGER NOT NULL,
  journal INTEGER NOT NULL,
  number INTEGER NOT NULL,
  hash BLOB NOT NULL,
  key BLOB NOT NULL,
  version INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  process_date INTEGER NOT NULL,
  insertion_date INTEGER NOT NULL,
  revised_date INTEGER NOT NULL,
  expiration_date INTEGER NOT NULL,
  first_start INTEGER NOT NULL,
  data BLOB NOT NULL
);
CREATE INDEX work_template_key ON work_template_entry (journal, hash);
CREATE INDEX work_template_expiry ON work_template_entry (journal, expiration_date) WHERE expiration_date > 0;
CREATE TABLE work_template_order (
  journal INTEGER NOT NULL,
  place INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  date INTEGER NOT NULL,
  id INTEGER NOT NULL,
  slot INTEGER NOT NULL,
  expiration_date INTEGER NOT NULL,
  size INTEGER NOT NULL,
  PRIMARY KEY (journal, place, priority, date, id)
) WITHOUT ROWID;
CREATE TABLE work_template_state (
  id INTEGER NOT NULL PRIMARY KEY,
  slot INTEGER NOT NULL,
  journal INTEGER NOT NULL,
  status TEXT NOT NULL,
  fence INTEGER NOT NULL,
  owner TEXT NOT NULL,
  start_date INTEGER NOT NULL,
  claimed_date INTEGER NOT NULL,
  beat INTEGER NOT NULL,
  lease INTEGER NOT NULL,
  counter INTEGER NOT NULL,
  retry_date INTEGER NOT NULL,
  look_at INTEGER NOT NULL
);
CREATE INDEX work_template_look ON work_template_state (journal, look_at) WHERE status = 'P';
CREATE VIEW work_template_whole AS
SELECT e.slot, e.id, e.number, e.hash, e.key, e.version, e.priority, e.process_date, e.insertion_date, e.revised_date,
  e.expiration_date, e.first_start, length(e.data) AS size, coalesce(s.status, 'W') AS status, coalesce(s.fence, 0) AS fence,
  coalesce(s.owner, '') AS owner, coalesce(s.start_date, 0) AS start_date,
  coalesce(s.claimed_date, 0) AS claimed_date, coalesce(s.beat, 0) AS beat, coalesce(s.lease, 0) AS lease,
  coalesce(s.counter, 0) AS counter, coalesce(s.retry_date, 0) AS retry_date, e.journal
FROM work_template_entry e LEFT JOIN work_template_state s ON s.id = e.id AND s.slot = e.slot;
