-- What was counted of lives.
INSERT INTO {schema}.made_total (key, life, events, seq_nr, timestamp, digest)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
ON CONFLICT (key, life) DO UPDATE
SET events = excluded.events, seq_nr = excluded.seq_nr, timestamp = excluded.timestamp, digest = excluded.digest;
