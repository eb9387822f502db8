-- One generation of a projection, locked: who changes its ranges does it alone.
SELECT id, name, generation, state, epoch, source, start, line, paused, wanted, fence, history_id
FROM {schema}.projection
WHERE id = $1::text FOR UPDATE;
