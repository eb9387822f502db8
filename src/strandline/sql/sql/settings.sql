-- All that creation fixed.
SELECT name, value FROM {schema}.{prefix}setting;
