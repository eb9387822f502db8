-- Remove entries.
DELETE FROM {schema}.work_{1}_entry e USING unnest($1::bigint[], $2::bigint[]) AS given (slot, id)
WHERE e.id = given.id AND e.slot = given.slot;
