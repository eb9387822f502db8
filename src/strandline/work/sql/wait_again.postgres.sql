-- Claims that ended otherwise than by done.
UPDATE {schema}.work_{1}_state s SET status = given.status, counter = given.counter, retry_date = given.retry_date
FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) AS given (id, status, counter, retry_date)
WHERE s.id = given.id;
