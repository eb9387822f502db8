-- Notes with one of these numbers.
SELECT name FROM note_page WHERE number IN (SELECT value FROM json_each(?1)) ORDER BY name;
