-- Take a record off the quarantine.
DELETE FROM {schema}.quarantine WHERE partition = $1 AND log_offset = $2;
