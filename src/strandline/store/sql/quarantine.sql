-- Damaged bytes and foreign records that the pipeline set aside.

-- step: 007_quarantine
-- Records that are not ours, and the bytes of damaged values, with the reason.
CREATE TABLE IF NOT EXISTS {schema}.quarantine (
    partition integer NOT NULL,
    log_offset bigint NOT NULL,
    timestamp bigint NOT NULL,
    key text {by_bytes},
    reason text NOT NULL,
    header bytea,
    value bytea,
    life bigint,
    first bigint,
    last bigint,
    digest bigint NOT NULL,
    PRIMARY KEY (partition, log_offset)
);
-- A purge takes the bytes of its life along.
CREATE INDEX IF NOT EXISTS quarantine_by_life ON {schema}.quarantine (key, life) WHERE life IS NOT NULL;

-- name: purge_quarantine
-- Remove the damaged bytes of a life.
DELETE FROM {schema}.quarantine WHERE key = $1 AND life = $2 AND life IS NOT NULL;

-- name: quarantined
-- What is in the quarantine, after a place, up to a partition.
SELECT partition, log_offset, timestamp, key, reason, header, value, life, first, last, digest
FROM {schema}.quarantine
WHERE (partition, log_offset) > ($1, $2) AND partition <= $3
ORDER BY partition, log_offset LIMIT $4;
