-- The tables of a set: entries, written once; the order of those that wait; what claims change. {1} is its name.
CREATE TABLE work_{1}_entry (
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
CREATE INDEX work_{1}_key ON work_{1}_entry (journal, hash);
CREATE INDEX work_{1}_expiry ON work_{1}_entry (journal, expiration_date) WHERE expiration_date > 0;
CREATE TABLE work_{1}_order (
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
CREATE TABLE work_{1}_state (
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
CREATE INDEX work_{1}_look ON work_{1}_state (journal, look_at) WHERE status = 'P';
CREATE VIEW work_{1}_whole AS
SELECT e.slot, e.id, e.number, e.hash, e.key, e.version, e.priority, e.process_date, e.insertion_date, e.revised_date,
  e.expiration_date, e.first_start, length(e.data) AS size, coalesce(s.status, 'W') AS status, coalesce(s.fence, 0) AS fence,
  coalesce(s.owner, '') AS owner, coalesce(s.start_date, 0) AS start_date,
  coalesce(s.claimed_date, 0) AS claimed_date, coalesce(s.beat, 0) AS beat, coalesce(s.lease, 0) AS lease,
  coalesce(s.counter, 0) AS counter, coalesce(s.retry_date, 0) AS retry_date, e.journal
FROM work_{1}_entry e LEFT JOIN work_{1}_state s ON s.id = e.id AND s.slot = e.slot;
