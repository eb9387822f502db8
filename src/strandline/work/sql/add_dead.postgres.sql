-- Keep dead letters.
INSERT INTO {schema}.work_dead (journal, dead_id, id, number, hash, key, data, version, priority, insertion_date,
  revised_date, expiration_date, counter, reason, owner, date, acknowledged)
SELECT $1::bigint, given.*, false FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[],
  $7::bytea[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
  $14::text[], $15::text[], $16::bigint[]) AS given;
