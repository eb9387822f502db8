-- A range, locked: a commit of it that is under way ends first.
SELECT lo, hi, fence, owner, position, saves, claims, trying, failed, retry_at, restarts, counts, repaired
FROM {schema}.projection_range
WHERE projection = $1::text AND epoch = $2::bigint AND lo = $3::bigint FOR UPDATE;
