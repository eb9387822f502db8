-- Forget a row that was put back.
DELETE FROM {schema}.repaired WHERE partition = $1 AND number = $2;
