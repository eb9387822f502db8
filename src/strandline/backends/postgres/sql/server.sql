-- What a server says of itself.
SELECT version(), current_setting('server_version_num')::integer, pg_is_in_recovery();
