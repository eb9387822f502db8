-- Records that are not ours, and the bytes of damaged values, with the reason.
CREATE TABLE quarantine (
    partition INTEGER NOT NULL,
    log_offset INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    key TEXT,
    reason TEXT NOT NULL,
    header BLOB,
    value BLOB,
    life INTEGER,
    first INTEGER,
    last INTEGER,
    digest INTEGER NOT NULL,
    PRIMARY KEY (partition, log_offset)
) STRICT;
