-- The last number that a set has drawn.
SELECT next_number - 1 FROM work_set WHERE name = $1;
