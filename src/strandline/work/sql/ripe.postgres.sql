-- Entries whose date has come, the oldest first, and the bytes of their data; the later table's are in slot 0.
SELECT o.slot, o.date, o.id, o.size FROM {schema}.work_{1}_order o WHERE o.journal = $1::bigint AND o.place = 1
  AND o.priority = 0 AND o.date <= $2::bigint
ORDER BY o.date, o.id LIMIT $3::bigint FOR UPDATE SKIP LOCKED;
