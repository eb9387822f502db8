-- Events by their days; the same again changes nothing.
INSERT INTO {schema}.made_day (day, timestamp, key, seq_nr, life, note, digest)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[])
ON CONFLICT (day, timestamp, key, seq_nr) DO NOTHING;
