-- Events by tag, in the order of TagRow: clustered by place, because a query reads a tag from a place on.
-- A key's numbers under a tag are unique; the index tells where each of its rows is.
CREATE TABLE tag_view (
    tag TEXT NOT NULL,
    bucket INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    key TEXT NOT NULL,
    life INTEGER NOT NULL,
    tag_seq_nr INTEGER NOT NULL,
    previous_timestamp INTEGER NOT NULL,
    previous_seq_nr INTEGER NOT NULL,
    row_digest INTEGER NOT NULL,
    seq_nr INTEGER NOT NULL,
    prev_seq_nr INTEGER NOT NULL,
    body BLOB NOT NULL,
    digest INTEGER NOT NULL,
    PRIMARY KEY (tag, timestamp, key, seq_nr)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX tag_view_by_key ON tag_view (key, life, tag, tag_seq_nr);

-- How far each key is in the views of its tags.
CREATE TABLE tag_progress (
    key TEXT NOT NULL,
    life INTEGER NOT NULL,
    tag TEXT NOT NULL,
    first_seq_nr INTEGER NOT NULL,
    seq_nr INTEGER NOT NULL,
    tag_seq_nr INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    PRIMARY KEY (key, life, tag)
) STRICT, WITHOUT ROWID;
