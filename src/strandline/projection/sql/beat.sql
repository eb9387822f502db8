-- A host says that it lives.
INSERT INTO {schema}.projection_host (projection, host, beat)
VALUES ($1::text, $2::text, $3::bigint)
ON CONFLICT (projection, host) DO UPDATE SET beat = excluded.beat;
