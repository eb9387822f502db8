-- Forget the records of a partition up to an offset.
DELETE FROM {schema}.log_action WHERE partition = $1 AND log_offset <= $2;
