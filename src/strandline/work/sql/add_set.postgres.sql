-- Keep a new set of tables; its numbers are a sequence.
INSERT INTO {schema}.work_set (name, number, settings) SELECT $1::text, $2::bigint, $3::text WHERE $4::bigint > 0;
