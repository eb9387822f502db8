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
