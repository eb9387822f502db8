-- End claims that nobody else has ended: the entries are gone. Their rows are locked in the order of their ids.
WITH held AS MATERIALIZED (
  SELECT s.id, s.slot FROM unnest($1::bigint[], $2::bigint[]) AS given (id, fence)
  JOIN {schema}.work_{1}_state s ON s.id = given.id AND s.fence = given.fence
  WHERE s.status = 'P' ORDER BY s.id FOR UPDATE OF s
), ended AS (
  DELETE FROM {schema}.work_{1}_state s USING held h WHERE s.id = h.id AND s.slot = h.slot
)
DELETE FROM {schema}.work_{1}_entry e USING held h WHERE e.id = h.id AND e.slot = h.slot RETURNING e.id, e.hash, e.key;
