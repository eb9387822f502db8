-- Keep a new set of tables.
INSERT INTO work_set (name, number, settings, next_number, boot) VALUES ($1, $2, $3, $4, '');
