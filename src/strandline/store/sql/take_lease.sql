-- Raise the fence and name the holder.
INSERT INTO lease (name, fence, holder, since) VALUES ('pipeline', 1, ?, ?)
ON CONFLICT (name) DO UPDATE SET fence = fence + 1, holder = excluded.holder, since = excluded.since
RETURNING fence;
