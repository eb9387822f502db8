-- Write entries.
INSERT INTO {schema}.work_{1}_entry (journal, slot, id, number, hash, key, version, priority, process_date,
  insertion_date, revised_date, expiration_date, first_start, data)
SELECT $1::bigint, given.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[],
  $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
  $14::bytea[]) AS given;
