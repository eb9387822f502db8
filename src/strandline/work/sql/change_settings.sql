-- Other settings for a journal.
UPDATE {schema}.work_journal SET settings = $2::text, settings_version = settings_version + 1 WHERE number = $1::bigint;
