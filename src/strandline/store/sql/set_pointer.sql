-- Move a pointer, or raise its fence or revision.
INSERT INTO pointer (partition, log_offset, timestamp, moved, fence, revision, digest) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (partition) DO UPDATE
SET log_offset = excluded.log_offset, timestamp = excluded.timestamp, moved = excluded.moved, fence = excluded.fence,
    revision = excluded.revision, digest = excluded.digest;
