-- Marks.

-- step: 001_stamp (postgres)
-- Stamps.
CREATE TABLE IF NOT EXISTS {schema}.stamp_mark (
    name text NOT NULL PRIMARY KEY
);

-- step: 001_stamp (sqlite)
CREATE TABLE stamp_mark (name TEXT NOT NULL PRIMARY KEY) STRICT;

-- name: add_stamp
-- Add a stamp.
INSERT INTO {schema}.stamp_mark (name) VALUES ($1);

-- name: stamps
-- All stamps.
SELECT name FROM {schema}.stamp_mark ORDER BY name;
