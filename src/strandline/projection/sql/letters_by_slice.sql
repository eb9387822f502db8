-- How many dead letters each slice has.
SELECT slice, count(*) FROM {schema}.projection_dead_letter WHERE projection = $1::text GROUP BY slice;
