-- Leases of this set are told by the clock of this boot.
UPDATE work_set SET boot = $2 WHERE name = $1;
