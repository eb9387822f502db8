-- The columns of all versions of a journal.
SELECT version, columns FROM {schema}.work_version WHERE journal = $1::bigint ORDER BY version;
