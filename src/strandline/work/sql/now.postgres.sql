-- The server's clock, unless the caller has one.
SELECT CASE WHEN $1::bigint > 0 THEN $1 ELSE (extract(epoch FROM clock_timestamp()) * 1000000)::bigint END;
