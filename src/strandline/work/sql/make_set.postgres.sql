-- The tables of a set, each cut into the later table (slot 0) and a ring: entries, written once; the order of those
-- that wait; what claims change. {1} is its name, {2} the first of its numbers, {3} the last.
DO $$ BEGIN
CREATE SEQUENCE {schema}.work_{1}_number AS bigint MINVALUE {2} MAXVALUE {3} START {2};
CREATE TABLE {schema}.work_{1}_entry (
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
) PARTITION BY LIST (slot);
CREATE INDEX work_{1}_key ON {schema}.work_{1}_entry (journal, hash);
CREATE INDEX work_{1}_expiry ON {schema}.work_{1}_entry (journal, expiration_date) WHERE expiration_date > 0;
CREATE TABLE {schema}.work_{1}_order (
  slot bigint NOT NULL,
  journal bigint NOT NULL,
  place bigint NOT NULL,
  priority bigint NOT NULL,
  date bigint NOT NULL,
  id bigint NOT NULL,
  expiration_date bigint NOT NULL,
  size bigint NOT NULL,
  PRIMARY KEY (journal, place, priority, date, id, slot)
) PARTITION BY LIST (slot);
CREATE TABLE {schema}.work_{1}_state (
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
) PARTITION BY LIST (slot);
CREATE INDEX work_{1}_look ON {schema}.work_{1}_state (journal, look_at) WHERE status = 'P';
CREATE VIEW {schema}.work_{1}_whole AS
SELECT e.slot, e.id, e.number, e.hash, e.key, e.version, e.priority, e.process_date, e.insertion_date, e.revised_date,
  e.expiration_date, e.first_start, octet_length(e.data)::bigint AS size, coalesce(s.status, 'W') AS status, coalesce(s.fence, 0) AS fence,
  coalesce(s.owner, '') AS owner, coalesce(s.start_date, 0) AS start_date,
  coalesce(s.claimed_date, 0) AS claimed_date, coalesce(s.beat, 0) AS beat, coalesce(s.lease, 0) AS lease,
  coalesce(s.counter, 0) AS counter, coalesce(s.retry_date, 0) AS retry_date, e.journal
FROM {schema}.work_{1}_entry e LEFT JOIN {schema}.work_{1}_state s ON s.id = e.id AND s.slot = e.slot;
END $$;
