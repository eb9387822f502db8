-- End claims that nobody else has ended: the entries are gone. Their rows are looked up one by one, where they were when
-- they were claimed, and locked in the order that is given, of ids: no plan walks over what others have ended before.
WITH held AS MATERIALIZED (
  SELECT found.id, found.slot FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS given (id, fence, slot)
  CROSS JOIN LATERAL (
    SELECT s.id, s.slot FROM {schema}.work_{1}_state s
    WHERE s.id = given.id AND s.slot = given.slot AND s.fence = given.fence AND s.status = 'P' FOR UPDATE
  ) AS found
), ended AS (
  DELETE FROM {schema}.work_{1}_state s USING held h WHERE s.id = h.id AND s.slot = h.slot
)
DELETE FROM {schema}.work_{1}_entry e USING held h WHERE e.id = h.id AND e.slot = h.slot RETURNING e.id, e.hash, e.key;
