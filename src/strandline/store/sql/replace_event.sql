-- Write an event whatever stands at its place: for corrections.
INSERT INTO {schema}.journal (
    key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (key, life, segment, seq_nr) DO UPDATE
SET prev_seq_nr = excluded.prev_seq_nr, entity_type = excluded.entity_type, slice = excluded.slice,
    partition = excluded.partition, timestamp = excluded.timestamp, body = excluded.body, digest = excluded.digest;
