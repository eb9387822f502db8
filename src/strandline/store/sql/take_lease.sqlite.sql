-- Raise the fence and name the holder, who has no errors yet.
INSERT INTO lease (name, fence, holder, since, errors) VALUES (?, 1, ?, ?, NULL)
ON CONFLICT (name) DO UPDATE SET fence = fence + 1, holder = excluded.holder, since = excluded.since, errors = NULL
RETURNING fence;
