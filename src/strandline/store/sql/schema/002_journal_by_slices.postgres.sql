-- Events of an entity type and partition by time; key and slice are there so that slices are chosen without the row.
CREATE INDEX IF NOT EXISTS journal_by_slices
ON {schema}.journal (entity_type, partition, timestamp, seq_nr, key, slice);
