-- Notes by number: one step for both dialects.
CREATE INDEX IF NOT EXISTS note_by_number ON {schema}.note_page (number);
