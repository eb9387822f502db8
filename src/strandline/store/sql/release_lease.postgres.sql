-- Nobody holds the lease of this fence any more.
UPDATE {schema}.lease SET holder = NULL, since = NULL, beat = beat + 1 WHERE name = $1 AND fence = $2;
