-- Add a stamp.
INSERT INTO {schema}.stamp_mark (name) VALUES ($1);
