-- Rows that were put back.
INSERT INTO {schema}.repaired (partition, number, key, life, seq_nr, timestamp, tag, tag_seq_nr, digest)
SELECT * FROM unnest(
    $1::integer[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[],
    $9::bigint[]
);
