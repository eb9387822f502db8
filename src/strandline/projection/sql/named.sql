-- The generations of a name.
SELECT id, name, generation, state, epoch, source, start, line, paused, wanted, fence, history_id
FROM {schema}.projection
WHERE name = $1::text
ORDER BY generation;
