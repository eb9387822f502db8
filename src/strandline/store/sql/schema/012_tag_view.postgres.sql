-- Events by tag, in the order of TagRow. A key's numbers under a tag are unique; the index tells where its rows are.
CREATE TABLE IF NOT EXISTS {schema}.tag_view (
    tag text {by_bytes} NOT NULL,
    bucket bigint NOT NULL,
    timestamp bigint NOT NULL,
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    tag_seq_nr bigint NOT NULL,
    previous_timestamp bigint NOT NULL,
    previous_seq_nr bigint NOT NULL,
    row_digest bigint NOT NULL,
    seq_nr bigint NOT NULL,
    prev_seq_nr bigint NOT NULL,
    body bytea NOT NULL,
    digest bigint NOT NULL,
    PRIMARY KEY (tag, timestamp, key, seq_nr)
);

CREATE UNIQUE INDEX IF NOT EXISTS tag_view_by_key ON {schema}.tag_view (key, life, tag, tag_seq_nr);

-- How far each key is in the views of its tags.
CREATE TABLE IF NOT EXISTS {schema}.tag_progress (
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    tag text {by_bytes} NOT NULL,
    first_seq_nr bigint NOT NULL,
    seq_nr bigint NOT NULL,
    tag_seq_nr bigint NOT NULL,
    timestamp bigint NOT NULL,
    digest bigint NOT NULL,
    PRIMARY KEY (key, life, tag)
) WITH (fillfactor = 70);
