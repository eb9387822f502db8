-- Notes up to a number are done.
UPDATE {schema}.note_page SET done = $2::boolean WHERE number <= $1::bigint;
