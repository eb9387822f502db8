-- A step of the schema is done.
INSERT INTO schema_step (name, additive) VALUES (?, ?);
