-- Up to which number a range has judged rows that were put back: JSON, by partition; 0 for one that is not named.
ALTER TABLE {schema}.projection_range ADD COLUMN IF NOT EXISTS repaired text NOT NULL DEFAULT '{}';
