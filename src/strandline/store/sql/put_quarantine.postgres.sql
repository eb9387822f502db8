-- Put records into the quarantine; the same one again changes nothing.
INSERT INTO {schema}.quarantine (
    partition, log_offset, timestamp, key, reason, header, value, life, first, last, digest
)
SELECT * FROM unnest(
    $1::integer[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[]
)
ON CONFLICT (partition, log_offset) DO NOTHING;
