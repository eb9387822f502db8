-- Let nobody end or extend these claims before we commit.
SELECT s.id, s.fence, s.status FROM {schema}.work_{1}_state s WHERE s.id = ANY($1::bigint[]) ORDER BY s.id FOR UPDATE;
