-- The next fence of a projection.
UPDATE {schema}.projection
SET fence = fence + 1
WHERE id = $1::text
RETURNING fence;
