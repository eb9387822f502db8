-- The rows of a partition by time, as they are. In binary, through a cursor of the server's.
SELECT key, life, seq_nr, prev_seq_nr, entity_type, slice, partition, timestamp, body, digest
FROM strandline.journal
WHERE entity_type = 'order' AND partition = %s
ORDER BY timestamp, seq_nr;
