-- Up to which number a range has judged rows that were put back: JSON, by partition; 0 for one that is not named.
ALTER TABLE projection_range ADD COLUMN repaired TEXT NOT NULL DEFAULT '{}';
