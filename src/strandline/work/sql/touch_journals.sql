-- Let every process that has a journal of this set open read its settings again.
UPDATE {schema}.work_journal SET settings_version = settings_version + 1 WHERE set_name = $1::text;
