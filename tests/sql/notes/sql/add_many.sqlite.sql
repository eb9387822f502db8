-- Add notes; their names.
INSERT INTO note_page (name, number, done, weight, body) VALUES (?2, ?3, ?4, ?5 * ?1, ?6) RETURNING name;
