-- What claims left behind, where entries are written anew.
INSERT INTO {schema}.work_{1}_state (journal, slot, id, status, fence, owner, start_date, claimed_date, beat, lease,
  counter, retry_date, look_at)
SELECT $1::bigint, given.* FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::text[],
  $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[]) AS given;
