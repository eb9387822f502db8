-- Those of these events, given by columns, that have one at their place; and whether it is the same.
SELECT given.key, given.life, given.seq_nr, (
    stands.prev_seq_nr, stands.entity_type, stands.slice, stands.partition, stands.timestamp, stands.body, stands.digest
) = (
    given.prev_seq_nr, given.entity_type, given.slice, given.partition, given.timestamp, given.body, given.digest
)
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::integer[], $8::integer[],
    $9::bigint[], $10::bytea[], $11::bigint[]
) AS given (
    key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
)
JOIN {schema}.journal AS stands
ON stands.key = given.key AND stands.life = given.life AND stands.segment = given.segment
    AND stands.seq_nr = given.seq_nr;
