-- A partition was trimmed up to here.
INSERT OR REPLACE INTO trimmed (partition, log_offset, timestamp) VALUES (?, ?, ?);
