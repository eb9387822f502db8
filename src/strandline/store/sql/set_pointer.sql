-- Move a pointer, or raise its fence or revision.
INSERT INTO {schema}.pointer (partition, log_offset, timestamp, moved, fence, revision, digest)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (partition) DO UPDATE
SET log_offset = excluded.log_offset, timestamp = excluded.timestamp, moved = excluded.moved, fence = excluded.fence,
    revision = excluded.revision, digest = excluded.digest;
