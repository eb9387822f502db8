-- The same for several partitions: all of them still end where they were left, or nothing happens. They are held in
-- ascending order, so that no two wait for each other.
WITH held AS (
    SELECT held.partition
    FROM {schema}.log_partition AS held
    JOIN unnest($13::integer[], $16::bigint[], $17::bigint[]) AS was (partition, newest, timestamp)
        ON held.partition = was.partition AND held.newest = was.newest AND held.timestamp = was.timestamp
    WHERE abs((extract(epoch FROM clock_timestamp()) * 1000000)::bigint - ($18::bigint[])[1]) <= ($18::bigint[])[2]
        AND (SELECT count(*) FROM {schema}.log_head WHERE key_digest = ANY($19::bytea[])) = 0
    ORDER BY held.partition FOR UPDATE OF held
), moved AS (
    UPDATE {schema}.log_partition AS ended SET newest = given.newest, timestamp = given.timestamp
    FROM unnest($13::integer[], $14::bigint[], $15::bigint[]) AS given (partition, newest, timestamp)
    WHERE ended.partition = given.partition AND (SELECT count(*) FROM held) = cardinality($13::integer[])
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
    INSERT INTO {schema}.log_head (key_digest, state)
    SELECT given.* FROM unnest($11::bytea[], $12::text[]) AS given WHERE EXISTS (SELECT 1 FROM moved)
    ON CONFLICT (key_digest) DO UPDATE SET state = excluded.state
)
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM moved LIMIT 1;
