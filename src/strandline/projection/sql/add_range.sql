-- A new range, without owner.
INSERT INTO {schema}.projection_range (projection, epoch, lo, hi, fence, owner, position, saves, claims, trying, failed, retry_at, restarts, counts, repaired)
VALUES ($1::text, $2::bigint, $3::bigint, $4::bigint, $5::bigint, NULL, $6::bigint, 0, 0, NULL, NULL, 0, 0, '{}', $7::text);
