-- Events by the day.

-- step: 001_made (additive)
-- Events by day, and how many a life ever had.
CREATE TABLE IF NOT EXISTS {schema}.made_day (
    day bigint NOT NULL,
    timestamp bigint NOT NULL,
    key text {by_bytes} NOT NULL,
    seq_nr bigint NOT NULL,
    life bigint NOT NULL,
    note text,
    digest bigint NOT NULL,
    PRIMARY KEY (day, timestamp, key, seq_nr)
);
CREATE INDEX IF NOT EXISTS made_day_by_key ON {schema}.made_day (key, life, seq_nr);
CREATE TABLE IF NOT EXISTS {schema}.made_total (
    key text {by_bytes} NOT NULL,
    life bigint NOT NULL,
    events bigint NOT NULL,
    seq_nr bigint NOT NULL,
    timestamp bigint NOT NULL,
    digest bigint NOT NULL,
    PRIMARY KEY (key, life)
);

-- name: made_of_day
-- Events of a day, after a place, up to a time.
SELECT day, timestamp, key, seq_nr, life, note, digest FROM {schema}.made_day
WHERE day = $1 AND (timestamp, key, seq_nr) > ($2, $3, $4) AND timestamp <= $5
ORDER BY timestamp, key, seq_nr LIMIT $6;
