-- Add rows to views of tags. The same row again changes nothing; one that says something else is a constraint error.
INSERT INTO {schema}.tag_view AS there (
    tag, bucket, timestamp, key, life, tag_seq_nr, previous_timestamp, previous_seq_nr, row_digest, seq_nr, prev_seq_nr,
    body, digest
)
SELECT
    unnest($1::text[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::text[]), unnest($5::bigint[]),
    unnest($6::bigint[]), unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::bigint[]), unnest($10::bigint[]),
    unnest($11::bigint[]), unnest($12::bytea[]), unnest($13::bigint[])
ON CONFLICT (tag, timestamp, key, seq_nr) DO UPDATE
SET row_digest = NULL
WHERE there.row_digest <> excluded.row_digest OR there.digest <> excluded.digest;
