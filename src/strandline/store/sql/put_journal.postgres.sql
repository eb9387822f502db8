-- Add events, given by columns. Another one at the place of one of them is a unique violation.
INSERT INTO {schema}.journal (
    key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
)
SELECT
    unnest($1::text[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::bigint[]),
    unnest($6::text[]), unnest($7::integer[]), unnest($8::integer[]), unnest($9::bigint[]), unnest($10::bytea[]),
    unnest($11::bigint[]);
