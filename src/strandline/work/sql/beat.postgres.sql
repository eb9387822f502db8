-- Heartbeats: $1 is now, by both clocks.
UPDATE {schema}.work_{1}_state s SET start_date = $1::bigint, beat = $2::bigint
FROM unnest($3::bigint[], $4::bigint[]) AS given (id, fence)
WHERE s.id = given.id AND s.fence = given.fence AND s.status = 'P' AND $2 - s.beat <= s.lease
RETURNING s.id;
