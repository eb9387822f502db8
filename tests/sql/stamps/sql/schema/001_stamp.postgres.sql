-- Stamps.
CREATE TABLE IF NOT EXISTS {schema}.stamp_mark (
    name text NOT NULL PRIMARY KEY
);
