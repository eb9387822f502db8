-- All that creation fixed.
SELECT name, value FROM setting;
