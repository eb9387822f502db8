-- The last rows of many keys.
INSERT INTO {schema}.projection_offset (projection, epoch, slice, key, life, seq_nr, timestamp, parked)
SELECT $1::text, $2::bigint, new.slice, new.key, new.life, new.seq_nr, new.timestamp, new.parked
FROM unnest($3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
    AS new (slice, key, life, seq_nr, timestamp, parked)
ON CONFLICT (projection, epoch, slice, key)
DO UPDATE SET life = excluded.life, seq_nr = excluded.seq_nr, timestamp = excluded.timestamp, parked = excluded.parked;
