-- Take a record off the quarantine.
DELETE FROM quarantine WHERE partition = ? AND log_offset = ?;
