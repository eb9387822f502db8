-- All of a projection that changes.
UPDATE {schema}.projection
SET name = $2::text, state = $3::text, epoch = $4::bigint, start = $5::bigint, line = $6::bigint, paused = $7::bigint,
    wanted = $8::bigint, fence = $9::bigint, history_id = $10::text
WHERE id = $1::text;
