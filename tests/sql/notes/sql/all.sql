-- All notes by name.
SELECT name, number, done, weight, body FROM {schema}.note_page ORDER BY name;
