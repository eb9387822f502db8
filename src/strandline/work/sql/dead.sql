-- Dead letters after one; $4: only those that nobody acknowledged.
SELECT dead_id, id, key, data, version, priority, insertion_date, revised_date, expiration_date, counter, reason,
  owner, date, acknowledged
FROM {schema}.work_dead WHERE journal = $1::bigint AND dead_id > $2::bigint AND (NOT $4::boolean OR NOT acknowledged)
ORDER BY dead_id LIMIT $3::bigint;
