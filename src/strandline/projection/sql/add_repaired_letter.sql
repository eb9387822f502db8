-- A dead letter for an event that was put back; one of the same event that is there says more.
INSERT INTO {schema}.projection_dead_letter (projection, key, life, seq_nr, slice, timestamp, attempts, first_at, last_at, error_type, message, reason)
VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::bigint, $6::bigint, 0, $7::bigint, $7::bigint, '', $8::text, 'repaired')
ON CONFLICT (projection, key, life, seq_nr) DO NOTHING;
