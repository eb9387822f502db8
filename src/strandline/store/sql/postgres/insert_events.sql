-- Add events, texts first and the body last. Another one at the place of one of them is a unique violation.
COPY {schema}.journal (key, entity_type, life, segment, seq_nr, prev_seq_nr, slice, partition, timestamp, digest, body)
FROM STDIN (FORMAT BINARY);
