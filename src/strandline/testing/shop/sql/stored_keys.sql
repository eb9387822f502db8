-- Every key that has a head.
SELECT key FROM metajournal
