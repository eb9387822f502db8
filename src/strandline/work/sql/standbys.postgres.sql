-- Which synchronous standbys a commit waits for.
SELECT current_setting('synchronous_standby_names');
