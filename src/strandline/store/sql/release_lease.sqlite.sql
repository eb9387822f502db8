-- Nobody holds the lease of this fence any more.
UPDATE lease SET holder = NULL, since = NULL WHERE name = ? AND fence = ?;
