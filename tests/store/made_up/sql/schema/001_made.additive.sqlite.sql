-- Events by day, and how many a life ever had.
CREATE TABLE made_day (
    day INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    key TEXT NOT NULL,
    seq_nr INTEGER NOT NULL,
    life INTEGER NOT NULL,
    note TEXT,
    digest INTEGER NOT NULL,
    PRIMARY KEY (day, timestamp, key, seq_nr)
) STRICT;
CREATE INDEX made_day_by_key ON made_day (key, life, seq_nr);
CREATE TABLE made_total (
    key TEXT NOT NULL,
    life INTEGER NOT NULL,
    events INTEGER NOT NULL,
    seq_nr INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    PRIMARY KEY (key, life)
) STRICT;
