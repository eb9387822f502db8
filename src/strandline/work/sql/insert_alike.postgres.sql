-- Write entries that differ in number, key and data alone, and put them into the order: $10 to $12 say where.
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($13::bigint[], $14::bytea[], $15::bytea[], $16::bytea[]) AS g (id, hash, key, data)
), written AS (
  INSERT INTO {schema}.work_{1}_entry (journal, slot, id, number, hash, key, version, priority, process_date,
    insertion_date, revised_date, expiration_date, first_start, data)
  SELECT $1::bigint, $2::bigint, g.id, g.id, g.hash, g.key, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint,
    $8::bigint, $9::bigint, g.data FROM given g
)
INSERT INTO {schema}.work_{1}_order (journal, slot, place, priority, date, id, expiration_date, size)
SELECT $1, $2, $10::bigint, $11::bigint, $12::bigint, g.id, $8, octet_length(g.data)::bigint FROM given g;
