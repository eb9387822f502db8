-- Keys that will expire, by when.
CREATE INDEX metajournal_by_expiry ON metajournal (expire_at, key) WHERE expire_at IS NOT NULL;
