-- Record actions of one partition and keep the states that they made, if the partition still ends where it was left, keys
-- that were taken for new ones have no state, and the timestamps are not far (µs) from the server's clock, which is the
-- answer; else nothing happens, and there is none. States are of the moment when the statement began: who has written one
-- since then has moved the partition, too.
WITH moved AS (
    UPDATE {schema}.log_partition
    SET newest = ($14::bigint[])[1], timestamp = ($15::bigint[])[1]
    WHERE partition = ($13::integer[])[1] AND newest = ($16::bigint[])[1] AND timestamp = ($17::bigint[])[1]
        AND abs((extract(epoch FROM clock_timestamp()) * 1000000)::bigint - ($18::bigint[])[1]) <= ($18::bigint[])[2]
        AND (SELECT count(*) FROM {schema}.log_head WHERE key_digest = ANY($19::bytea[])) = 0
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
    INSERT INTO {schema}.log_head (key_digest, state)
    SELECT given.* FROM unnest($11::bytea[], $12::text[]) AS given WHERE EXISTS (SELECT 1 FROM moved)
    ON CONFLICT (key_digest) DO UPDATE SET state = excluded.state
)
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM moved;
