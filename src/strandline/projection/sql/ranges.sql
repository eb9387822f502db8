-- The ranges of a projection.
SELECT lo, hi, fence, owner, position, saves, claims, trying, failed, retry_at, restarts, counts, repaired
FROM {schema}.projection_range
WHERE projection = $1::text AND epoch = $2::bigint
ORDER BY lo;
