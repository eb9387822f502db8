-- When to look at leases that heartbeats have moved.
UPDATE {schema}.work_{1}_state s SET look_at = given.look_at
FROM unnest($1::bigint[], $2::bigint[]) AS given (id, look_at) WHERE s.id = given.id;
