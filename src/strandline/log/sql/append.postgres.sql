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
    INSERT INTO {schema}.log_head (key_digest, state) SELECT * FROM unnest($11::bytea[], $12::text[])
    ON CONFLICT (key_digest) DO UPDATE SET state = excluded.state
)
UPDATE {schema}.log_partition AS held SET newest = moved.newest, timestamp = moved.timestamp
FROM unnest($13::integer[], $14::bigint[], $15::bigint[]) AS moved (partition, newest, timestamp)
WHERE held.partition = moved.partition;
