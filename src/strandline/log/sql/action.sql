-- Actions, a row each.

-- name: append (postgres)
-- Record actions, keep the states that they made, move the ends of their partitions.
WITH recorded AS (
    INSERT INTO {schema}.log_action (
        partition, log_offset, timestamp, life, first, last, key_hash, key, header, value
    )
    SELECT * FROM unnest(
        $1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[],
        $9::bytea[], $10::bytea[]
    )
), kept AS (
    INSERT INTO {schema}.log_head (key_digest, state, digest) SELECT * FROM unnest($11::bytea[], $12::text[], $13::bigint[])
    ON CONFLICT (key_digest) DO UPDATE SET state = excluded.state, digest = excluded.digest
)
UPDATE {schema}.log_partition AS held SET newest = moved.newest, timestamp = moved.timestamp
FROM unnest($14::integer[], $15::bigint[], $16::bigint[]) AS moved (partition, newest, timestamp)
WHERE held.partition = moved.partition;

-- name: append_actions (sqlite)
-- Record actions.
INSERT OR FAIL INTO action (
    seq, partition, log_offset, timestamp, key_hash, life, first, last, state, key, header, value
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: append_all_at_once (postgres)
-- The same for several partitions: all of them still end where they were left, or nothing happens. They are held in
-- ascending order, so that no two wait for each other.
WITH held AS (
    SELECT held.partition
    FROM {schema}.log_partition AS held
    JOIN unnest($14::integer[], $17::bigint[], $18::bigint[]) AS was (partition, newest, timestamp)
        ON held.partition = was.partition AND held.newest = was.newest AND held.timestamp = was.timestamp
    WHERE abs((extract(epoch FROM clock_timestamp()) * 1000000)::bigint - ($19::bigint[])[1]) <= ($19::bigint[])[2]
        AND (SELECT count(*) FROM {schema}.log_head WHERE key_digest = ANY($20::bytea[])) = 0
    ORDER BY held.partition FOR UPDATE OF held
), moved AS (
    UPDATE {schema}.log_partition AS ended SET newest = given.newest, timestamp = given.timestamp
    FROM unnest($14::integer[], $15::bigint[], $16::bigint[]) AS given (partition, newest, timestamp)
    WHERE ended.partition = given.partition AND (SELECT count(*) FROM held) = cardinality($14::integer[])
    RETURNING ended.partition
), recorded AS (
    INSERT INTO {schema}.log_action (
        partition, log_offset, timestamp, life, first, last, key_hash, key, header, value
    )
    SELECT given.* FROM unnest(
        $1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[],
        $9::bytea[], $10::bytea[]
    ) AS given
    WHERE EXISTS (SELECT 1 FROM moved)
), kept AS (
    INSERT INTO {schema}.log_head (key_digest, state, digest)
    SELECT given.* FROM unnest($11::bytea[], $12::text[], $13::bigint[]) AS given WHERE EXISTS (SELECT 1 FROM moved)
    ON CONFLICT (key_digest) DO UPDATE SET state = excluded.state, digest = excluded.digest
)
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM moved LIMIT 1;

-- name: append_at_once (postgres)
-- Record actions of one partition and keep the states that they made, if the partition still ends where it was left, keys
-- that were taken for new ones have no state, and the timestamps are not far (µs) from the server's clock, which is the
-- answer; else nothing happens, and there is none. States are of the moment when the statement began: who has written one
-- since then has moved the partition, too.
WITH moved AS (
    UPDATE {schema}.log_partition
    SET newest = ($15::bigint[])[1], timestamp = ($16::bigint[])[1]
    WHERE partition = ($14::integer[])[1] AND newest = ($17::bigint[])[1] AND timestamp = ($18::bigint[])[1]
        AND abs((extract(epoch FROM clock_timestamp()) * 1000000)::bigint - ($19::bigint[])[1]) <= ($19::bigint[])[2]
        AND (SELECT count(*) FROM {schema}.log_head WHERE key_digest = ANY($20::bytea[])) = 0
    RETURNING partition
), recorded AS (
    INSERT INTO {schema}.log_action (
        partition, log_offset, timestamp, life, first, last, key_hash, key, header, value
    )
    SELECT given.* FROM unnest(
        $1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[],
        $9::bytea[], $10::bytea[]
    ) AS given
    WHERE EXISTS (SELECT 1 FROM moved)
), kept AS (
    INSERT INTO {schema}.log_head (key_digest, state, digest)
    SELECT given.* FROM unnest($11::bytea[], $12::text[], $13::bigint[]) AS given WHERE EXISTS (SELECT 1 FROM moved)
    ON CONFLICT (key_digest) DO UPDATE SET state = excluded.state, digest = excluded.digest
)
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM moved;

-- name: last_seq (sqlite)
-- The last action that was recorded and is still there, and the last that can be found by its place.
SELECT coalesce((SELECT max(seq) FROM action), 0), placed.seq FROM placed;

-- name: read (postgres)
-- Records of a partition between two offsets, as the fields of a Record; without values where they are not wanted. No
-- LIMIT: offsets have no holes, and where the planner knows little it would sort all that lies between bounds that are far
-- from each other.
SELECT partition, log_offset, timestamp, key, header, CASE WHEN $4::boolean THEN value END, life, first, last
FROM {schema}.log_action
WHERE partition = $1::integer AND log_offset > $2::bigint AND log_offset <= $3::bigint
ORDER BY log_offset;

-- name: read_key (postgres)
-- Records of one key up to the one that makes their values more than these bytes, each with the bytes up to it; and of the
-- same moment, how far the partition was trimmed and its newest offset.
SELECT held.trimmed, held.newest, sized.size, sized.partition, sized.log_offset, sized.timestamp, sized.key, sized.header,
    CASE WHEN $5::boolean THEN sized.value END, sized.life, sized.first, sized.last
FROM {schema}.log_partition AS held
LEFT JOIN LATERAL (
    SELECT partition, log_offset, timestamp, key, header, value, life, first, last,
        sum(octet_length(value)) OVER (ORDER BY log_offset ROWS UNBOUNDED PRECEDING) AS size
    FROM {schema}.log_action
    WHERE key_hash = $7::bigint AND key = $8::text AND partition = $1::integer
        AND log_offset > $2::bigint AND log_offset <= $3::bigint
    ORDER BY log_offset LIMIT $4::bigint
) AS sized ON coalesce(sized.size, 0) - coalesce(octet_length(sized.value), 0) <= $6::bigint
WHERE held.partition = $1::integer
ORDER BY sized.log_offset;

-- name: read_sized (postgres)
-- The same with values, no more bytes of them than these; the first passes.
SELECT partition, log_offset, timestamp, key, header, value, life, first, last
FROM (
    SELECT partition, log_offset, timestamp, key, header, value, life, first, last,
        sum(octet_length(value)) OVER (ORDER BY log_offset ROWS UNBOUNDED PRECEDING) AS size
    FROM {schema}.log_action
    WHERE partition = $1::integer AND log_offset > $2::bigint AND log_offset <= $3::bigint
) AS sized
WHERE coalesce(size, 0) <= $4::bigint OR size = octet_length(value)
ORDER BY log_offset;

-- name: read_unplaced (sqlite)
-- The same of the few that have no place yet. Within a partition they stand in the order of their offsets.
SELECT
    partition, log_offset, timestamp, key, header, iif(:values, value, NULL), life, first, last
FROM action
WHERE seq > (SELECT seq FROM placed)
AND partition = :partition AND log_offset > :after AND log_offset <= :to
AND (:key_hash IS NULL OR key_hash = :key_hash) AND (:key IS NULL OR key = :key)
ORDER BY seq LIMIT :limit;

-- name: tail (sqlite)
-- The first of the newest actions that changed a head which their key does not have: an earlier action has it, or none.
SELECT changed.partition, changed.log_offset, changed.key
FROM (SELECT seq, partition, log_offset, key_hash, key, state FROM action ORDER BY seq DESC LIMIT ?) AS changed
LEFT JOIN latest ON latest.key_hash = changed.key_hash
LEFT JOIN action AS owner ON owner.seq = latest.seq
WHERE changed.state IS NOT NULL AND (latest.key_hash IS NULL OR (owner.key = changed.key AND owner.seq < changed.seq))
ORDER BY changed.seq LIMIT 1;

-- name: trim_actions (postgres)
-- Forget the records of a partition up to an offset.
DELETE FROM {schema}.log_action WHERE partition = $1 AND log_offset <= $2;

-- name: trim_actions (sqlite)
-- Forget the records of a run of places.
DELETE FROM action WHERE seq IN (SELECT seq FROM place WHERE partition = :partition AND log_offset <= :to);
