-- The round is over, whoever is still connected.
DROP DATABASE IF EXISTS {database} WITH (FORCE);
