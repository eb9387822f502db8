-- The events that stand at these places.
SELECT stands.key, stands.life, stands.segment, stands.seq_nr, stands.prev_seq_nr, stands.entity_type, stands.slice,
    stands.partition, stands.timestamp, stands.body, stands.digest
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS place (key, life, segment, seq_nr)
JOIN {schema}.journal AS stands
ON stands.key = place.key AND stands.life = place.life AND stands.segment = place.segment
    AND stands.seq_nr = place.seq_nr;
