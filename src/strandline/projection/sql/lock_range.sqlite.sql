-- A range; the file's write lock is held.
SELECT lo, hi, fence, owner, position, saves, claims, trying, failed, retry_at, restarts, counts
FROM projection_range
WHERE projection = ?1 AND epoch = ?2 AND lo = ?3;
