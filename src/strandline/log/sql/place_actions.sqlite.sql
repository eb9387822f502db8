-- Note where the actions are that were recorded since the last time.
INSERT OR FAIL INTO place (partition, log_offset, timestamp, key_hash, seq)
SELECT partition, log_offset, timestamp, key_hash, seq FROM action WHERE seq > (SELECT seq FROM placed)
ORDER BY partition, log_offset;
