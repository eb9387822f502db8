-- How far each partition is in the store. All rows are made with the store: who writes a partition holds its row.
CREATE TABLE IF NOT EXISTS {schema}.pointer (
    partition integer NOT NULL PRIMARY KEY,
    log_offset bigint NOT NULL,
    timestamp bigint NOT NULL,
    moved bigint NOT NULL,
    fence bigint NOT NULL,
    revision bigint NOT NULL,
    digest bigint NOT NULL
) WITH (fillfactor = 10);
