-- Write entries of a table into another one.
WITH gone AS (DELETE FROM {schema}.work_{1}_entry e USING unnest($3::bigint[]) AS given (id)
  WHERE e.id = given.id AND e.slot = $1::bigint RETURNING e.*)
INSERT INTO {schema}.work_{1}_entry (slot, id, journal, number, version, priority, process_date, insertion_date,
  revised_date, expiration_date, first_start, hash, key, data)
SELECT $2::bigint, id, journal, number, version, priority, process_date, insertion_date, revised_date, expiration_date,
  first_start, hash, key, data FROM gone;
