-- Put entries into the order.
INSERT INTO {schema}.work_{1}_order (journal, slot, place, priority, date, id, expiration_date, size)
SELECT $1::bigint, given.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
  $7::bigint[], $8::bigint[]) AS given;
