-- A dead letter; one of the same event that is there counts on.
INSERT INTO {schema}.projection_dead_letter (projection, key, life, seq_nr, slice, timestamp, attempts, first_at, last_at, error_type, message, reason)
VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::bigint, $9::bigint, $10::text, $11::text, $12::text)
ON CONFLICT (projection, key, life, seq_nr)
DO UPDATE SET attempts = projection_dead_letter.attempts + excluded.attempts, last_at = excluded.last_at,
    error_type = excluded.error_type, message = excluded.message, reason = excluded.reason;
