-- The dead letters of a projection.
SELECT key, life, seq_nr, slice, timestamp, attempts, first_at, last_at, error_type, message, reason
FROM {schema}.projection_dead_letter
WHERE projection = $1::text AND (key, life, seq_nr) > ($2::text, $3::bigint, $4::bigint)
ORDER BY key, life, seq_nr LIMIT $5::bigint;
