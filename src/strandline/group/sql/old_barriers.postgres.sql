-- Groups of which there are rows older than so many seconds, by this database's clock. $1 owner, $2 seconds, $3 limit
SELECT DISTINCT group_id, life FROM {schema}.strandline_barrier
WHERE owner = $1 AND at < now() - make_interval(secs => $2) LIMIT $3
