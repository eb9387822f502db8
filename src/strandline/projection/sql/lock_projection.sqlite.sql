-- One generation of a projection; the file's write lock is held.
SELECT id, name, generation, state, epoch, source, start, line, paused, wanted, fence, history_id
FROM projection
WHERE id = ?1;
