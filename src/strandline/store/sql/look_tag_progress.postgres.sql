-- How far keys are in the views of their tags.
SELECT key, life, tag, first_seq_nr, seq_nr, tag_seq_nr, timestamp, digest
FROM {schema}.tag_progress WHERE key = ANY($1::text[]);
