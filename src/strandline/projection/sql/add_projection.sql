-- A new projection; one that is there stays as it is.
INSERT INTO {schema}.projection (id, name, generation, state, epoch, source, start, line, paused, wanted, fence, history_id)
VALUES ($1::text, $2::text, $3::bigint, $4::text, $5::bigint, $6::text, $7::bigint, $8::bigint, $9::bigint, $10::bigint, $11::bigint, $12::text)
ON CONFLICT (name, generation) DO NOTHING;
