-- So many numbers of a set: the one after the last of them.
UPDATE work_set SET next_number = next_number + $2 WHERE name = $1 RETURNING next_number;
