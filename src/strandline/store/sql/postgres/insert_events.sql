-- Add events. Another one at the place of one of them is a unique violation.
COPY {schema}.journal (key, life, segment, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest)
FROM STDIN (FORMAT BINARY);
