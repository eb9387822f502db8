-- Keep the columns of a version.
INSERT INTO {schema}.work_version (journal, version, columns) VALUES ($1::bigint, $2::bigint, $3::text);
