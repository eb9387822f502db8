-- Pause a journal, or let it go on.
UPDATE {schema}.work_journal SET paused = $2::text WHERE number = $1::bigint;
