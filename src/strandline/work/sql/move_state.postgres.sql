-- The same of what claims changed.
WITH gone AS (DELETE FROM {schema}.work_{1}_state s USING unnest($3::bigint[]) AS given (id)
  WHERE s.id = given.id AND s.slot = $1::bigint RETURNING s.*)
INSERT INTO {schema}.work_{1}_state (slot, id, journal, fence, start_date, claimed_date, beat, lease, counter,
  retry_date, look_at, status, owner)
SELECT $2::bigint, id, journal, fence, start_date, claimed_date, beat, lease, counter, retry_date, look_at, status, owner
FROM gone;
