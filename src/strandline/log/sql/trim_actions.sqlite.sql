-- Forget the records of a run of places.
DELETE FROM action WHERE seq IN (SELECT seq FROM place WHERE partition = :partition AND log_offset <= :to);
