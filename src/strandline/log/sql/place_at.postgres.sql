-- The action at a place: its timestamp.
SELECT timestamp FROM {schema}.log_action WHERE partition = $1 AND log_offset = $2;
