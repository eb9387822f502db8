-- Who carries. The fence only grows; the row is never removed. The holder moves the beat; `beaten` is when, by the
-- server's clock (µs).
CREATE TABLE IF NOT EXISTS {schema}.lease (
    name text NOT NULL PRIMARY KEY,
    fence bigint NOT NULL,
    holder text,
    since bigint,
    beat bigint NOT NULL,
    beaten bigint NOT NULL,
    errors text
);
