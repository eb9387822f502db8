-- Who uses this database: a row for each stream of each history. `owner` names the row, whoever it belongs to later:
-- barrier rows hang on it.
CREATE TABLE IF NOT EXISTS {schema}.strandline_target (
    owner text NOT NULL PRIMARY KEY,
    identity text NOT NULL,
    history_id text NOT NULL,
    stream text NOT NULL,
    fence bigint NOT NULL,
    version integer NOT NULL,
    UNIQUE (history_id, stream)
)
