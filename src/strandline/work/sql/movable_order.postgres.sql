-- What waits in a table, as far as nobody is at it.
SELECT journal, place, priority, date, id FROM {schema}.work_{1}_order WHERE slot = $1::bigint LIMIT $2::bigint
FOR UPDATE SKIP LOCKED;
