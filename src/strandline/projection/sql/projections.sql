-- All projections, generation by generation.
SELECT id, name, generation, state, epoch, source, start, line, paused, wanted, fence, history_id
FROM {schema}.projection
ORDER BY name, generation;
