-- Notes with one of these numbers.
SELECT name FROM {schema}.note_page WHERE number = ANY($1::bigint[]) ORDER BY name;
