-- Forget where they were.
DELETE FROM place WHERE partition = :partition AND log_offset <= :to;
