-- The view `event`: the journal as a person reads it in psql or sqlite3.

-- step: 011_event (postgres, additive)
-- Events for people: `SELECT key, seq_nr, time, type, tags, metadata, payload FROM event`. A JSON payload is `jsonb`,
-- so `payload ->> 'total'` works; bytes are in `payload_bytes`; of a damaged event `damaged` says what is wrong, and it
-- has no payload. The body is taken apart as `values/events.py` packs it: four offsets of four bytes each, the smallest
-- byte first.
CREATE OR REPLACE VIEW {schema}.event AS
SELECT
    key,
    life,
    seq_nr,
    to_timestamp(timestamp / 1000000.0) AS time,
    convert_from(substring(body FROM 69 FOR tags_at - 68), 'UTF8') AS type,
    CASE WHEN headers_at > tags_at
        THEN convert_from(substring(body FROM tags_at + 1 FOR headers_at - tags_at), 'UTF8') ELSE '[]' END::jsonb
        AS tags,
    CASE WHEN payload_at > metadata_at
        THEN convert_from(substring(body FROM metadata_at + 1 FOR payload_at - metadata_at), 'UTF8') END::jsonb
        AS metadata,
    CASE WHEN form = 1 THEN convert_from(substring(body FROM payload_at + 1), 'UTF8') END::jsonb AS payload,
    CASE WHEN form = 0 THEN substring(body FROM payload_at + 1) END AS payload_bytes,
    CASE WHEN form IS NULL THEN 'version' WHEN form = 2 THEN 'undecodable' WHEN form = 3 THEN 'digest' END AS damaged,
    CASE WHEN metadata_at > headers_at
        THEN convert_from(substring(body FROM headers_at + 1 FOR metadata_at - headers_at), 'UTF8') END::jsonb
        AS headers,
    timestamp,
    entity_type,
    slice,
    partition
FROM {schema}.journal
CROSS JOIN LATERAL (
    SELECT
        CASE WHEN get_byte(body, 0) = 1 THEN get_byte(body, 17) END AS form,
        get_byte(body, 52) + (get_byte(body, 53) << 8) + (get_byte(body, 54) << 16) + (get_byte(body, 55) << 24)
            AS tags_at,
        get_byte(body, 56) + (get_byte(body, 57) << 8) + (get_byte(body, 58) << 16) + (get_byte(body, 59) << 24)
            AS headers_at,
        get_byte(body, 60) + (get_byte(body, 61) << 8) + (get_byte(body, 62) << 16) + (get_byte(body, 63) << 24)
            AS metadata_at,
        get_byte(body, 64) + (get_byte(body, 65) << 8) + (get_byte(body, 66) << 16) + (get_byte(body, 67) << 24)
            AS payload_at
) AS part;

-- step: 011_event (sqlite, additive)
-- Events for people: `SELECT key, seq_nr, time, type, tags, metadata, payload FROM event`. A JSON payload is JSON text,
-- so `payload ->> '$.total'` works; bytes are a blob; of a damaged event `damaged` says what is wrong, and it has no
-- payload. The body is taken apart as `values/events.py` packs it: its version first, then at 18 the form; four offsets of four bytes each begin at byte 53,
-- the smallest byte first. SQLite cannot read a number from a blob: each hexadecimal digit is looked up in `d`.
CREATE VIEW event AS
WITH
    digits AS (
        SELECT *, hex(substr(body, 53, 16)) AS h, '123456789ABCDEF' AS d, hex(substr(body, 1, 1)) || hex(substr(body, 18, 1)) AS form FROM journal
    ),
    parts AS (
        SELECT
            *,
            (instr(d, substr(h, 1, 1)) << 4) + (instr(d, substr(h, 2, 1)) << 0) +
            (instr(d, substr(h, 3, 1)) << 12) + (instr(d, substr(h, 4, 1)) << 8) +
            (instr(d, substr(h, 5, 1)) << 20) + (instr(d, substr(h, 6, 1)) << 16) +
            (instr(d, substr(h, 7, 1)) << 28) + (instr(d, substr(h, 8, 1)) << 24) AS tags_at,
            (instr(d, substr(h, 9, 1)) << 4) + (instr(d, substr(h, 10, 1)) << 0) +
            (instr(d, substr(h, 11, 1)) << 12) + (instr(d, substr(h, 12, 1)) << 8) +
            (instr(d, substr(h, 13, 1)) << 20) + (instr(d, substr(h, 14, 1)) << 16) +
            (instr(d, substr(h, 15, 1)) << 28) + (instr(d, substr(h, 16, 1)) << 24) AS headers_at,
            (instr(d, substr(h, 17, 1)) << 4) + (instr(d, substr(h, 18, 1)) << 0) +
            (instr(d, substr(h, 19, 1)) << 12) + (instr(d, substr(h, 20, 1)) << 8) +
            (instr(d, substr(h, 21, 1)) << 20) + (instr(d, substr(h, 22, 1)) << 16) +
            (instr(d, substr(h, 23, 1)) << 28) + (instr(d, substr(h, 24, 1)) << 24) AS metadata_at,
            (instr(d, substr(h, 25, 1)) << 4) + (instr(d, substr(h, 26, 1)) << 0) +
            (instr(d, substr(h, 27, 1)) << 12) + (instr(d, substr(h, 28, 1)) << 8) +
            (instr(d, substr(h, 29, 1)) << 20) + (instr(d, substr(h, 30, 1)) << 16) +
            (instr(d, substr(h, 31, 1)) << 28) + (instr(d, substr(h, 32, 1)) << 24) AS payload_at
        FROM digits
    )
SELECT
    key,
    life,
    seq_nr,
    strftime('%Y-%m-%dT%H:%M:%S', timestamp / 1000000, 'unixepoch') || printf('.%06dZ', timestamp % 1000000) AS time,
    CAST(substr(body, 69, tags_at - 68) AS TEXT) AS type,
    CASE WHEN headers_at > tags_at THEN CAST(substr(body, tags_at + 1, headers_at - tags_at) AS TEXT) ELSE '[]' END
        AS tags,
    CASE WHEN payload_at > metadata_at THEN CAST(substr(body, metadata_at + 1, payload_at - metadata_at) AS TEXT) END
        AS metadata,
    CASE form
        WHEN '0100' THEN substr(body, payload_at + 1)
        WHEN '0101' THEN CAST(substr(body, payload_at + 1) AS TEXT)
    END AS payload,
    CASE WHEN form NOT LIKE '01%' THEN 'version' WHEN form = '0102' THEN 'undecodable' WHEN form = '0103' THEN 'digest' END
        AS damaged,
    CASE WHEN metadata_at > headers_at THEN CAST(substr(body, headers_at + 1, metadata_at - headers_at) AS TEXT) END
        AS headers,
    timestamp,
    entity_type,
    slice,
    partition
FROM parts;
