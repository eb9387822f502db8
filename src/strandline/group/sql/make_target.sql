-- Who uses this database: a row for each stream of each history.
CREATE TABLE IF NOT EXISTS {schema}.strandline_target (
    identity text NOT NULL,
    history_id text NOT NULL,
    stream text NOT NULL,
    fence bigint NOT NULL,
    version integer NOT NULL,
    PRIMARY KEY (history_id, stream)
)
