-- How far keys are in views of tags.
INSERT INTO {schema}.tag_progress (key, life, tag, first_seq_nr, seq_nr, tag_seq_nr, timestamp, digest)
SELECT * FROM unnest(
    $1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[]
)
ON CONFLICT (key, life, tag) DO UPDATE
SET first_seq_nr = excluded.first_seq_nr, seq_nr = excluded.seq_nr, tag_seq_nr = excluded.tag_seq_nr,
    timestamp = excluded.timestamp, digest = excluded.digest;
