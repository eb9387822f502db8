-- Keys that will expire, by when.
CREATE INDEX IF NOT EXISTS metajournal_by_expiry
ON {schema}.metajournal (expire_at, key) WHERE expire_at IS NOT NULL;
