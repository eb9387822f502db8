-- Remove what claims left behind.
DELETE FROM {schema}.work_{1}_state s USING unnest($1::bigint[], $2::bigint[]) AS given (slot, id)
WHERE s.id = given.id AND s.slot = given.slot;
