-- Rows that a repair or a rebuild put back behind the pointer.

-- step: 013_repaired (additive)
-- Rows that a repair or rebuild put back: a projection may have passed their places.
CREATE TABLE IF NOT EXISTS {schema}.repaired (
    partition integer NOT NULL,
    number bigint NOT NULL,
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    seq_nr bigint NOT NULL,
    timestamp bigint NOT NULL,
    tag text {by_bytes},
    tag_seq_nr bigint,
    digest bigint NOT NULL,
    PRIMARY KEY (partition, number)
) {rowless};

CREATE INDEX IF NOT EXISTS repaired_by_key ON {schema}.repaired (key, life);

-- name: put_back
-- Rows of a partition that were put back, by their numbers.
SELECT partition, number, key, life, seq_nr, timestamp, tag, tag_seq_nr, digest
FROM {schema}.repaired
WHERE partition = $1 AND number > $2::bigint AND number <= $3::bigint
ORDER BY number LIMIT $4;

-- name: put_repaired (postgres)
-- Rows that were put back.
INSERT INTO {schema}.repaired (partition, number, key, life, seq_nr, timestamp, tag, tag_seq_nr, digest)
SELECT * FROM unnest(
    $1::integer[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[],
    $9::bigint[]
);

-- name: put_repaired (sqlite)
-- A row that was put back.
INSERT INTO repaired (partition, number, key, life, seq_nr, timestamp, tag, tag_seq_nr, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);
