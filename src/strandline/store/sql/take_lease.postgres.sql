-- Raise the fence and name the holder, who has no errors yet; nothing if the row is not as it was seen.
INSERT INTO {schema}.lease AS held (name, fence, holder, since, beat, beaten, errors)
SELECT $1::text, 1, $2::text, coalesce($5::bigint, clock.now), 0, clock.now, NULL
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) AS clock
ON CONFLICT (name) DO UPDATE
SET fence = held.fence + 1, holder = excluded.holder, since = excluded.since, beat = held.beat + 1,
    beaten = excluded.beaten, errors = NULL
WHERE held.fence = $3::bigint AND held.beat = $4::bigint
RETURNING fence;
