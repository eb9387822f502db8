-- Keys that waited at or below a time wait on in a new epoch.
INSERT INTO {schema}.projection_offset (projection, epoch, slice, key, life, seq_nr, timestamp, parked)
SELECT projection, $3::bigint, slice, key, life, seq_nr, timestamp, parked
FROM {schema}.projection_offset
WHERE projection = $1::text AND epoch = $2::bigint AND parked <= $4::bigint;
